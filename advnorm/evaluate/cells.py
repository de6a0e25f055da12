"""One column of a robustness table: what is done to each image, and who wins.

A cell is named by a string: ``clean``, ``noise-0.25`` (standard deviation), ``fgsm``,
``bim-10`` (steps), ``pgd-50`` and ``pgd-50x5`` (five restarts).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks import ATTACKS, LogitsFn
from advnorm.draws import Draws
from advnorm.records import Setting, ThreatRecord, result_key
from advnorm.registry import unknown
from advnorm.threat import Bounds, Threat

Attack = Callable[[LogitsFn, Tensor, Tensor, Draws], Tensor]


class Judged(NamedTuple):
    """What became of a batch: the images as seen, predictions, still right or not."""

    images: Tensor
    predictions: Tensor
    robust: Tensor


@dataclass(frozen=True)
class Cell:
    """A named way to judge a batch."""

    name: str
    judge: Callable[[LogitsFn, Tensor, Tensor, Draws], Judged]
    threat: Threat | None = None
    settings: dict[str, Setting] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name of its result."""
        return result_key(self.name, self.threat_record)

    @property
    def threat_record(self) -> ThreatRecord | None:
        """The threat as a record."""
        threat = self.threat
        if threat is None:
            return None
        return ThreatRecord(norm=threat.name, eps=threat.eps, bounds=threat.bounds)


def cells(
    names: Sequence[str],
    threats: Sequence[Threat],
    bounds: Bounds,
    *,
    step_ratio: float = 2.5,
) -> list[Cell]:
    """Make a cell of each natural name, and of each attack at each threat."""
    made = []
    for name in names:
        family, amount, restarts = _parse(name)
        if family in _NATURAL:
            made.append(_natural(name, family, amount, bounds))
        else:
            steps = int(amount or 10)
            made += [
                _attack(name, family, threat, steps, restarts, step_ratio=step_ratio)
                for threat in threats
            ]
    return made


def natural(change: Callable[[Tensor, Draws], Tensor]) -> Callable[..., Judged]:
    """Judge images that nobody chose: the prediction on the changed image counts."""

    def judge(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Judged:
        images = change(clean, draws)
        predictions = predict(logits_fn, images)
        return Judged(images, predictions, predictions == labels)

    return judge


def worst_case(attack: Attack, threat: Threat, *, restarts: int) -> Callable[..., Judged]:
    """Judge by an adversary: one confirmed success of any restart breaks a sample.

    A sample that is wrong when clean is not attacked; a broken one is dropped at once. A
    success counts only if a fresh forward pass confirms it, inside the ball and the bounds.
    """

    def judge(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Judged:
        images, predictions = clean.clone(), predict(logits_fn, clean)
        robust = predictions == labels
        for restart in range(restarts):
            rows = robust.nonzero().squeeze(1)
            if not len(rows):
                break
            x = attack(logits_fn, clean[rows], labels[rows], draws[rows].stream(restart))
            guess = predict(logits_fn, x)
            broken = (guess != labels[rows]) & threat.contains(x, clean[rows])
            images[rows] = x
            predictions[rows[broken]] = guess[broken]
            robust[rows[broken]] = False
        return Judged(images, predictions, robust)

    return judge


def predict(logits_fn: LogitsFn, images: Tensor) -> Tensor:
    """Return the class of the largest logit of each image."""
    with torch.no_grad():
        return logits_fn(images).argmax(1)


def _parse(name: str) -> tuple[str, float | None, int]:
    match = re.fullmatch(r"([a-z_]+)(?:-([0-9.]+))?(?:x([1-9][0-9]*))?", name)
    known = [*_NATURAL, *ATTACKS]
    if not match or match[1] not in known:
        raise unknown("attack", match[1] if match else name, known)
    return match[1], float(match[2]) if match[2] else None, int(match[3] or 1)


def _natural(name: str, family: str, amount: float | None, bounds: Bounds) -> Cell:
    if family == "clean":
        return Cell(name, natural(_unchanged))
    sigma = 0.25 if amount is None else amount
    return Cell(
        name,
        natural(partial(_noise, sigma=sigma, bounds=bounds)),
        settings={"sigma": sigma},
    )


def _attack(
    name: str,
    family: str,
    threat: Threat,
    steps: int,
    restarts: int,
    *,
    step_ratio: float,
) -> Cell:
    function = ATTACKS[family]
    settings: dict[str, float] = {}
    if "steps" in signature(function).parameters:
        settings = {"steps": steps, "step_size": step_ratio * threat.eps / steps}

    def attack(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        return function(logits_fn, clean, labels, threat, draws=draws, **settings)

    judge = worst_case(attack, threat, restarts=restarts)
    return Cell(name, judge, threat, {"restarts": restarts, **settings})


def _unchanged(clean: Tensor, draws: Draws) -> Tensor:
    return clean


def _noise(clean: Tensor, draws: Draws, *, sigma: float, bounds: Bounds) -> Tensor:
    """Add Gaussian noise and clip to the bounds: a model is given valid images only."""
    noise = draws.stream("noise").normal(*clean.shape[1:], dtype=clean.dtype)
    return (clean + sigma * noise).clamp_(*bounds)


_NATURAL = ("clean", "noise")
