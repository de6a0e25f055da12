"""The three domains of sitawarin2021: clean images, and what two attacks make of them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from advnorm.attacks import pgd
from advnorm.diagnose.rest import together
from advnorm.draws import Draws
from advnorm.evaluate.cells import attackers_of
from advnorm.evaluate.judges import worst_case
from advnorm.progress import Progress, Quiet
from advnorm.threat import Threat

Search = Callable[[Tensor, Tensor, Draws], Tensor]


def weak(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Return the images of PGD with steps of 2.5 eps / steps, in the model's mode."""

    def search(x: Tensor, y: Tensor, draws: Draws) -> Tensor:
        size = 2.5 * threat.eps / steps
        return pgd(model, x, y, threat, steps=steps, step_size=size, draws=draws)

    return _found(search, images, labels, f"pgd-{steps}", seed=seed, progress=progress)


def strong(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    suite: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Return the worst images that a suite of attacks finds, in the model's mode."""
    judge = worst_case(attackers_of(suite, threat), threat)

    def search(x: Tensor, y: Tensor, draws: Draws) -> Tensor:
        return judge(model, x, y, draws).images

    return _found(search, images, labels, suite, seed=seed, progress=progress)


def _found(
    search: Search,
    images: Tensor,
    labels: Tensor,
    name: str,
    *,
    seed: int,
    progress: Progress | None,
) -> Tensor:
    """Search a part of the images at a time, each sample with its own random numbers."""
    progress, parts = progress or Quiet(), list[Tensor]()
    progress.update(0, len(images), f"images, {name}")
    samples = torch.arange(len(images), device=images.device)
    for rows in torch.split(samples, together(len(images))):
        parts.append(search(images[rows], labels[rows], Draws.of(seed, rows)))
        progress.update(int(rows[-1]) + 1, len(images), f"images, {name}")
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
    found = {"clean": images}
    found[f"pgd-{steps}"] = weak(
        model, images, labels, threat, steps=steps, seed=seed, progress=progress
    )
    found[suite] = strong(
        model, images, labels, threat, suite=suite, seed=seed, progress=progress
    )
    return found
