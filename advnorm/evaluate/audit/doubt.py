"""When a number is too large to be noise: one rule for shares, one for two attacks."""

from scipy.stats import binomtest
from torch import Tensor

from advnorm.records import Accuracy

LEVEL = 0.01
"""Probability of the sign test below which an order of two attacks is no chance."""


def exceeds(count: int, n: int, limit: float) -> bool:
    """Tell whether a share is clearly above ``limit``: its whole 95% interval is.

    >>> exceeds(8, 100, 0.05), exceeds(12, 100, 0.05), exceeds(0, 0, 0.05)
    (False, True, False)
    """
    return n > 0 and Accuracy(correct=count, n=n).interval[0] > limit


def count(mask: Tensor) -> int:
    """Return how many entries hold."""
    return int(mask.sum())


def clearly_lower(suspect: Tensor, trusted: Tensor) -> bool:
    """Tell whether fewer samples stand under ``suspect`` than under ``trusted``.

    The exact sign test on the samples that only one of the two attacks breaks.

    Args:
        suspect: Which samples stand under the attack that should be the weaker one.
        trusted: Which stand under the one that should be at least as strong.
    """
    only_suspect, only_trusted = count(trusted & ~suspect), count(suspect & ~trusted)
    total = only_suspect + only_trusted
    if not total:
        return False
    test = binomtest(only_suspect, total, alternative="greater")
    return bool(test.pvalue < LEVEL)
