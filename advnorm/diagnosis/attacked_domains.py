"""The three domains of sitawarin2021: clean images, and what two attacks make of them."""

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import attack_in_batches
from advnorm.draws import Draws
from advnorm.evaluation.conditions import attackers_of
from advnorm.evaluation.stages import STANDS, worst_case
from advnorm.progress import Progress
from advnorm.threat import Threat


def attack_images(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    attack: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Return what an attack makes of the images, broken or not, in the model's mode.

    It is named as in an evaluation: ``pgd-10`` has steps of 2.5 eps / 10.
    """
    found = attackers_of(attack, threat)
    if len(found) > 1 or found[0].restarts > 1 or ".." in attack:
        raise ValueError(
            f"{attack!r} is several attacks: name one without restarts, such as 'pgd-10'"
        )

    def search(rows: Tensor) -> Tensor:
        return found[0].attack(model, images[rows], labels[rows], Draws.of(seed, rows))

    return attack_in_batches(search, images, f"images, {attack}", progress)


def worst_case_images(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    suite: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Return the images that break the model, and the clean ones of those it withstands.

    So AutoAttack does: what fails is no adversarial example. In the model's mode.
    """
    judge = worst_case(attackers_of(suite, threat), threat)

    def search(rows: Tensor) -> Tensor:
        clean = images[rows]
        found = judge(model, clean, labels[rows], Draws.of(seed, rows))
        broken = (found.by != STANDS).view(-1, *(1,) * (clean.ndim - 1))
        return torch.where(broken, found.images, clean)

    return attack_in_batches(search, images, f"images, {suite}", progress)


def three_domains(
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
    found[f"pgd-{steps}"] = attack_images(
        model, images, labels, threat, attack=f"pgd-{steps}", seed=seed, progress=progress
    )
    found[suite] = worst_case_images(
        model, images, labels, threat, suite=suite, seed=seed, progress=progress
    )
    return found
