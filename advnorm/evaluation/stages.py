"""Who wins: images that nobody chose, or the worst that adversaries find."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks import LogitsFn
from advnorm.draws import Draws
from advnorm.evaluation.predictions import predict
from advnorm.records import Setting
from advnorm.threat import Threat

Attack = Callable[[LogitsFn, Tensor, Tensor, Draws], Tensor]
STANDS = -1


class Judged(NamedTuple):
    """What became of a batch: the images as seen, predictions, still right or not.

    ``by`` is the number of the attack that broke a sample, else :data:`STANDS`, which also
    holds for one that was wrong from the start.
    """

    images: Tensor
    predictions: Tensor
    robust: Tensor
    by: Tensor
    curve: Tensor | None = None
    """Of a curve: which samples stand at each step count, shape ``(batch, counts)``."""


class Attacker(NamedTuple):
    """An attack of a cell, ready to run."""

    name: str
    attack: Attack
    restarts: int
    settings: dict[str, Setting]
    path: str = ""
    """What its random numbers are drawn by, where that is not its name."""

    @property
    def stream(self) -> str:
        """What its random numbers are drawn by."""
        return self.path or self.name


def natural(change: Callable[[Tensor, Draws], Tensor]) -> Callable[..., Judged]:
    """Judge images that nobody chose: the prediction on the changed image counts."""

    def judge(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Judged:
        images = change(clean, draws)
        predictions = predict(logits_fn, images, labels)
        stands = torch.full_like(predictions, STANDS)
        return Judged(images, predictions, predictions == labels, stands)

    return judge


def worst_case(attackers: Sequence[Attacker], threat: Threat) -> Callable[..., Judged]:
    """Judge by adversaries: one confirmed success of any of them breaks a sample.

    A sample that is wrong when clean is not attacked; a broken one is dropped at once. A
    success counts only if a fresh forward pass confirms it, inside the ball and the bounds.
    A ball of radius 0 holds the clean image alone: nothing is searched.
    """
    runs = [
        (number, attacker.attack, (attacker.stream, restart))
        for number, attacker in enumerate(attackers)
        for restart in range(attacker.restarts if threat.eps else 0)
    ]

    def judge(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Judged:
        images, predictions = clean.clone(), predict(logits_fn, clean, labels)
        robust, by = predictions == labels, torch.full_like(predictions, STANDS)
        for number, attack, stream in runs:
            rows = robust.nonzero().squeeze(1)
            if not len(rows):
                break
            x = attack(logits_fn, clean[rows], labels[rows], draws[rows].stream(*stream))
            guess = predict(logits_fn, x, labels[rows])
            broken = (guess != labels[rows]) & threat.contains(x, clean[rows])
            images[rows] = x
            predictions[rows[broken]] = guess[broken]
            by[rows[broken]] = number
            robust[rows[broken]] = False
        return Judged(images, predictions, robust, by)

    return judge
