"""The three domains of sitawarin2021: clean, PGD and worst-case adversarial images."""

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, attack_in_batches
from advnorm.draws import Draws
from advnorm.evaluation.condition_names import parse_attacks
from advnorm.evaluation.conditions import attack_search, bind_attacks
from advnorm.evaluation.stages import CLEAN, NOT_BROKEN, StageInput
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
    progress: Progress = QUIET,
) -> Tensor:
    """Return the last iterates of one attack, successful or not, in the model's mode.

    The attack is named as in an evaluation: ``pgd-10`` has steps of 2.5 eps / 10.
    """
    attacks = parse_attacks(attack)
    if len(attacks) > 1 or attacks[0].restarts > 1 or attacks[0].counts:
        raise ValueError(
            f"{attack!r} is more than one attack: name one, without restarts, like 'pgd-10'"
        )
    (bound,) = bind_attacks(attacks, threat)

    def search(rows: Tensor) -> Tensor:
        draws = Draws.of(seed, rows)
        return bound.attack(model, images[rows], labels[rows], draws=draws)

    return attack_in_batches(search, images, f"images, {attack}", progress)


def worst_case_images(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    suite: str,
    seed: int = 0,
    progress: Progress = QUIET,
) -> Tensor:
    """Return adversarial images of a suite; the clean image where every attack fails.

    As AutoAttack does: a failed attack is no adversarial example. In the model's mode.
    """
    attacks = attack_search(suite, threat)

    def search(rows: Tensor) -> Tensor:
        clean = images[rows]
        batch = StageInput(model, model, clean, labels[rows], Draws.of(seed, rows))
        verdicts = attacks.run(batch, CLEAN.run(batch))
        broken = (verdicts.broken_by != NOT_BROKEN).view(-1, *(1,) * (clean.ndim - 1))
        return torch.where(broken, verdicts.images, clean)

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
    progress: Progress = QUIET,
) -> dict[str, Tensor]:
    """Return the images of the three domains by name, attacked in the model's mode."""
    attack = f"pgd-{steps}"
    weak = attack_images(
        model, images, labels, threat, attack=attack, seed=seed, progress=progress
    )
    worst = worst_case_images(
        model, images, labels, threat, suite=suite, seed=seed, progress=progress
    )
    return {"clean": images, attack: weak, suite: worst}
