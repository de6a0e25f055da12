r"""Linear relaxations: two lines that hold an activation between them on an interval.

For an activation :math:`f` and bounds :math:`l \le z \le u` of its input,

.. math:: \underline a z + \underline b \le f(z) \le \overline a z + \overline b.

ReLU and its leaky kin take CROWN's lines (Zhang et al., 2018): the chord above, and below
one of the two pieces, whichever leaves the smaller area. All others take two lines of the
chord's slope :math:`k`, moved to the extremes of :math:`g(z) = f(z) - k z`, which are at
the ends of the interval or where :math:`f'(z) = k`. Where that has no closed form, g is
looked at on a grid of spacing h: between two points it leaves their chord by at most
:math:`h^2 \max |f''| / 8`. Every slope is sound, so rounding in k costs no soundness.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GRID = 32
"""Cells of the grid for an activation whose slope cannot be inverted."""


class Lines(NamedTuple):
    """A lower and an upper line, each of the shape of the input (or broadcast to it).

    A ``lower_bias`` without dimensions is zero.
    """

    lower_slope: Tensor
    lower_bias: Tensor
    upper_slope: Tensor
    upper_bias: Tensor


Relaxation = Callable[[nn.Module, Tensor, Tensor], Lines]


def relu(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.ReLU``: :func:`_two_pieces` of slope 0, in fewer operations."""
    low, high = lower.clamp(max=0), upper.clamp(min=0)
    chord = high / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
    piece = (upper + lower > 0).to(low.dtype)
    return Lines(piece, low.new_zeros(()), chord, -chord * low)


def leaky_relu(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.LeakyReLU``."""
    assert isinstance(layer, nn.LeakyReLU)
    slope = torch.as_tensor(layer.negative_slope, dtype=lower.dtype, device=lower.device)
    return _two_pieces(lower, upper, slope)


def prelu(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.PReLU``, one slope for all features or one each."""
    assert isinstance(layer, nn.PReLU)
    shape = (-1, *(1,) * (lower.ndim - 2))
    return _two_pieces(lower, upper, layer.weight.view(shape))


def _two_pieces(lower: Tensor, upper: Tensor, slope: Tensor) -> Lines:
    r"""Relax :math:`f(z) = z` above zero and ``slope`` z below it.

    The chord is :math:`k (z - l^-) + s\,l^-` with :math:`k = (u^+ - s\,l^-)/(u^+ - l^-)`;
    for :math:`s \le 1` it lies above and a piece below: the identity where
    :math:`u > -l`, else ``slope``; for :math:`s > 1` the other way round. A stable neuron
    has both lines equal to its piece.
    """
    low, high = lower.clamp(max=0), upper.clamp(min=0)
    width = high - low
    chord = (high - slope * low) / width.clamp(min=torch.finfo(low.dtype).tiny)
    chord = torch.where(width > 0, chord, slope)
    bias = (slope - chord) * low
    piece = torch.where(high + low > 0, torch.ones_like(slope), slope).expand_as(chord)
    piece = torch.where(lower >= 0, 1, torch.where(upper <= 0, slope, piece))
    zero = torch.zeros_like(bias)
    convex = slope <= 1
    return Lines(
        torch.where(convex, piece, chord),
        torch.where(convex, zero, bias),
        torch.where(convex, chord, piece),
        torch.where(convex, bias, zero),
    )


def tanh(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Tanh``: :math:`\tanh' z = k` at :math:`\pm\mathrm{artanh}\sqrt{1-k}`."""
    k = _chord(torch.tanh, lower, upper)
    point = _artanh_of_rest(k)
    return _parallel(torch.tanh, lower, upper, k, (point, -point))


def sigmoid(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Sigmoid``, which is :math:`(1 + \tanh(z/2))/2`."""
    k = _chord(torch.sigmoid, lower, upper)
    point = 2 * _artanh_of_rest(4 * k)
    return _parallel(torch.sigmoid, lower, upper, k, (point, -point))


def _artanh_of_rest(k: Tensor) -> Tensor:
    r"""Return :math:`\mathrm{artanh}\sqrt{1-k}`, finite where :math:`1-k` rounds to 1."""
    k = k.clamp(torch.finfo(k.dtype).tiny, 1)
    return ((1 + (1 - k).sqrt()) / k.sqrt()).log()


def softplus(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Softplus``: its slope is k at :math:`\mathrm{logit}(k)/\beta`.

    Torch replaces it by the identity where :math:`\beta z` is over the threshold t; the
    step there, :math:`\log(1 + e^{-t})/\beta`, is added to the gap.
    """
    assert isinstance(layer, nn.Softplus)
    f = partial(F.softplus, beta=layer.beta, threshold=layer.threshold)
    k = _chord(f, lower, upper)
    point = torch.logit(k.clamp(0, 1)) / layer.beta
    step = float(F.softplus(torch.tensor(-layer.threshold, dtype=torch.float64)))
    return _parallel(f, lower, upper, k, (point,), slack=step / layer.beta)


def elu(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.ELU``: its slope is k at :math:`\log(k/\alpha)`; it bends at 0."""
    assert isinstance(layer, nn.ELU)
    if layer.alpha <= 0:
        raise NotImplementedError(f"ELU has a rule for alpha > 0, not {layer.alpha:g}")
    f = partial(F.elu, alpha=layer.alpha)  # never in place
    k = _chord(f, lower, upper)
    point = torch.log((k / layer.alpha).clamp(min=0))
    return _parallel(f, lower, upper, k, (point, torch.zeros_like(k)))


def hardtanh(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.Hardtanh`` and ``nn.ReLU6``, which bend at two points."""
    assert isinstance(layer, nn.Hardtanh)
    f = partial(F.hardtanh, min_val=layer.min_val, max_val=layer.max_val)
    k = _chord(f, lower, upper)
    bends = [torch.full_like(k, bend) for bend in (layer.min_val, layer.max_val)]
    return _parallel(f, lower, upper, k, bends)


def silu(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.SiLU``, whose second derivative is at most 1/2."""
    return _on_grid(F.silu, lower, upper, curvature=0.5)


def gelu(layer: nn.Module, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.GELU``: second derivative at most :math:`2/\sqrt{2\pi} < 0.8`, at 0.

    The tanh form has the same bound.
    """
    assert isinstance(layer, nn.GELU)
    f = partial(F.gelu, approximate=layer.approximate)
    return _on_grid(f, lower, upper, curvature=0.8)


def _chord(f: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor) -> Tensor:
    """Return the chord's slope, 0 on an empty interval; rounding aside."""
    width = upper - lower
    safe = torch.where(width > 0, width, 1)
    return torch.where(width > 0, (f(upper) - f(lower)) / safe, 0).detach()


def _parallel(
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


def _on_grid(
    f: Callable[[Tensor], Tensor], lower: Tensor, upper: Tensor, *, curvature: float
) -> Lines:
    """Move two lines of the chord's slope to bounds of g's extremes, from a grid."""
    k, step = _chord(f, lower, upper), (upper - lower) / GRID
    low = high = f(lower) - k * lower
    for i in range(1, GRID + 1):
        z = lower + i * step if i < GRID else upper
        value = f(z) - k * z
        low, high = torch.minimum(low, value), torch.maximum(high, value)
    gap = curvature * step.square() / 8
    return Lines(k, low - gap, k, high + gap)


RELAXATIONS: dict[type[nn.Module], Relaxation] = {
    nn.ReLU: relu,
    nn.LeakyReLU: leaky_relu,
    nn.PReLU: prelu,
    nn.Tanh: tanh,
    nn.Sigmoid: sigmoid,
    nn.Softplus: softplus,
    nn.ELU: elu,
    nn.Hardtanh: hardtanh,
    nn.ReLU6: hardtanh,
    nn.SiLU: silu,
    nn.GELU: gelu,
}
"""The relaxation of each activation, by exact type."""
