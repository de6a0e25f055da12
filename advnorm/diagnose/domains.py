"""The three domains of sitawarin2021: clean images, and what two attacks make of them."""

import torch
from torch import Tensor, nn

from advnorm.attacks import pgd
from advnorm.diagnose.rest import BATCH
from advnorm.draws import Draws
from advnorm.evaluate.cells import attackers_of
from advnorm.evaluate.judges import worst_case
from advnorm.progress import Progress, Quiet
from advnorm.threat import Threat


def weak(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    seed: int = 0,
) -> Tensor:
    """Return the images of PGD with steps of 2.5 eps / steps, in the model's mode."""
    samples = torch.arange(len(images), device=images.device)
    parts = [
        pgd(
            model,
            images[rows],
            labels[rows],
            threat,
            steps=steps,
            step_size=2.5 * threat.eps / steps,
            draws=Draws.of(seed, rows),
        )
        for rows in torch.split(samples, BATCH)
    ]
    return torch.cat(parts)


def strong(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    suite: str,
    seed: int = 0,
) -> Tensor:
    """Return the worst images that a suite of attacks finds, in the model's mode."""
    judge = worst_case(attackers_of(suite, threat), threat)
    samples = torch.arange(len(images), device=images.device)
    parts = [
        judge(model, images[rows], labels[rows], Draws.of(seed, rows)).images
        for rows in torch.split(samples, BATCH)
    ]
    return torch.cat(parts)


def three(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    suite: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Return the images of the three domains by name, found in the model's mode."""
    progress = progress or Quiet()
    found = {"clean": images}
    found[f"pgd-{steps}"] = weak(model, images, labels, threat, steps=steps, seed=seed)
    progress.update(1, 2, f"pgd-{steps}")
    found[suite] = strong(model, images, labels, threat, suite=suite, seed=seed)
    progress.update(2, 2, suite)
    return found
