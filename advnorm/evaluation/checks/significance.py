"""When a number is too large to be noise: one rule for shares, one for two attacks."""

from math import sqrt

import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from advnorm.records import Accuracy

LEVEL = 0.01
"""Probability of the sign test below which an order of two attacks is no chance."""


def exceeds(count: int, n: int, limit: float) -> bool:
    """Tell whether a share is clearly above ``limit``: its whole 95% interval is.

    >>> exceeds(8, 100, 0.05), exceeds(12, 100, 0.05), exceeds(0, 0, 0.05)
    (False, True, False)
    """
    return n > 0 and Accuracy(correct=count, n=n).interval[0] > limit


def share_differing(a: Tensor, b: Tensor, rounding: float) -> float:
    """Return the share of rows of logits that differ by more than rounding.

    Args:
        a: Logits, shape ``(batch, classes)``.
        b: Other logits of the same images.
        rounding: Of a whole pass, relative to the spread of a row: see :func:`rounding_of`.
    """
    spread = (a.amax(1) - a.amin(1)).clamp(min=torch.finfo(a.dtype).tiny)
    return ((a - b).abs().amax(1) > rounding * spread).double().mean().item()


def rounding_of(model: nn.Module) -> float:
    """Return the rounding of a whole pass: the root of the model's own precision."""
    kinds = [p.dtype for p in model.parameters() if p.is_floating_point()]
    return sqrt(torch.finfo(kinds[0] if kinds else torch.float32).eps)


def count(mask: Tensor) -> int:
    """Return how many entries hold."""
    return int(mask.sum())


def clearly_lower(suspect: Tensor, trusted: Tensor) -> bool:
    """Return whether fewer samples are robust under ``suspect`` than ``trusted``.

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
