r"""Linear relaxations: two lines that hold an activation between them on an interval.

For an activation :math:`f` and bounds :math:`l \le z \le u` of its input,

.. math:: \underline a z + \underline b \le f(z) \le \overline a z + \overline b.

ReLU and its leaky kin take CROWN's lines (Zhang et al., 2018): the chord above, and below
one of the two pieces, whichever leaves the smaller area. All others take two lines of the
chord's slope :math:`k`, moved to the extremes of :math:`g(z) = f(z) - k z`, which are at
the ends of the interval or where :math:`f'(z) = k`. Where that has no closed form, g is
evaluated on a grid of spacing h: between two points it leaves their chord by at most
:math:`h^2 \max |f''| / 8`. Every slope is sound, so rounding in k costs no soundness.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

GRID = 32
"""Intervals of the grid for an activation whose slope cannot be inverted."""


class Lines(NamedTuple):
    """A lower and an upper line, each of the shape of the input (or broadcast to it).

    A ``lower_bias`` without dimensions is zero.
    """

    lower_slope: Tensor
    lower_bias: Tensor
    upper_slope: Tensor
    upper_bias: Tensor


Relaxation = Callable[[Any, Tensor, Tensor], Lines]
"""Takes a layer and bounds of its input."""


def two_pieces(lower: Tensor, upper: Tensor, slope: Tensor) -> Lines:
    r"""Relax :math:`f(z) = z` above zero and ``slope`` z below it.

    The chord is :math:`k (z - l^-) + s\,l^-` with :math:`k = (u^+ - s\,l^-)/(u^+ - l^-)`;
    for :math:`s \le 1` it lies above and a piece below: the identity where
    :math:`u > -l`, else ``slope``; for :math:`s > 1` the other way round. A stable neuron
    has both lines equal to its piece.
    """
    low, high = lower.clamp(max=0), upper.clamp(min=0)
    width = high - low
    k = (high - slope * low) / width.clamp(min=torch.finfo(low.dtype).tiny)
    k = torch.where(width > 0, k, slope)
    bias = (slope - k) * low
    piece = torch.where(high + low > 0, torch.ones_like(slope), slope).expand_as(k)
    piece = torch.where(lower >= 0, 1, torch.where(upper <= 0, slope, piece))
    zero = torch.zeros_like(bias)
    convex = slope <= 1
    return Lines(
        torch.where(convex, piece, k),
        torch.where(convex, zero, bias),
        torch.where(convex, k, piece),
        torch.where(convex, bias, zero),
    )


def chord(f: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor) -> Tensor:
    """Return the chord's slope, 0 on an empty interval; rounding aside."""
    width = upper - lower
    safe = torch.where(width > 0, width, 1)
    return torch.where(width > 0, (f(upper) - f(lower)) / safe, 0).detach()


def parallel(
    f: Callable[[Tensor], Tensor],
    lower: Tensor,
    upper: Tensor,
    k: Tensor,
    points: Sequence[Tensor],
    slack: float = 0.0,
) -> Lines:
    """Move two lines of slope k to the extremes of g, at the ends or at ``points``."""
    # An infinite or undefined point lies outside or is an end: clamp sends it there.
    inside = [torch.nan_to_num(p.detach()).clamp(lower, upper) for p in points]
    values = [f(z) - k * z for z in (lower, upper, *inside)]
    low, high = values[0], values[0]
    for value in values[1:]:
        low, high = torch.minimum(low, value), torch.maximum(high, value)
    return Lines(k, low - slack, k, high + slack)


def on_grid(
    f: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor, *, curvature: float
) -> Lines:
    """Move two lines of the chord's slope to bounds of g's extremes, from a grid.

    ``curvature`` bounds the second derivative of ``f``, which has to be smooth.
    """
    k, step = chord(f, lower, upper), (upper - lower) / GRID
    low = high = f(lower) - k * lower
    for i in range(1, GRID + 1):
        z = lower + i * step if i < GRID else upper
        value = f(z) - k * z
        low, high = torch.minimum(low, value), torch.maximum(high, value)
    gap = curvature * step.square() / 8
    return Lines(k, low - gap, k, high + gap)
