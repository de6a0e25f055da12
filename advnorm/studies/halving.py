"""Successive halving (Jamieson & Talwalkar, 2016): stop early what is clearly behind."""

from collections.abc import Mapping
from math import ceil

from advnorm.records import Accuracy, Epoch

RUNGS = (4, 2)
"""The epochs after which combinations are compared: a quarter, and a half."""


def rung_epochs(epochs: int) -> list[int]:
    """Return the shorter trainings after which combinations are compared.

    >>> rung_epochs(30), rung_epochs(3), rung_epochs(1)
    ([8, 15], [1, 2], [])
    """
    lengths = dict.fromkeys(ceil(epochs / part) for part in RUNGS)
    return [length for length in lengths if length < epochs]


def held_out(epoch: Epoch) -> Accuracy:
    """Return the held-out accuracy that combinations are ranked by: robust, else clean."""
    accuracy = epoch.validation_robust or epoch.validation_clean
    return accuracy or Accuracy(correct=0, n=0)


def behind(accuracies: Mapping[str, Accuracy]) -> dict[str, str]:
    """Return what to stop, and why: of the lower half, what is clearly behind the best.

    Clearly: the 95% intervals of the two accuracies do not meet.

    >>> scores = {"a": 90, "b": 88, "c": 87, "d": 50}
    >>> behind({k: Accuracy(correct=v, n=100) for k, v in scores.items()})
    {'d': '50.0% [40.4%, 59.6%] n=100 held-out, a has 90.0% [82.6%, 94.5%] n=100'}
    """
    order = sorted(accuracies, key=lambda label: -_fraction(accuracies[label]))
    if not order:
        return {}
    best = order[0]
    lower = order[ceil(len(order) / 2) :]
    return {
        label: f"{accuracies[label]} held-out, {best} has {accuracies[best]}"
        for label in lower
        if accuracies[label].interval[1] < accuracies[best].interval[0]
    }


def _fraction(accuracy: Accuracy) -> float:
    return accuracy.fraction if accuracy.n else -1.0
