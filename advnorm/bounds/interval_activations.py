r"""Interval rules of activations and maxima: ends of the interval, and a valley's bottom.

An increasing function maps :math:`[l, u]` onto :math:`[f(l), f(u)]`. A function that falls
until :math:`v` and rises after it has its least value at the point of :math:`[l, u]`
nearest to :math:`v`, and its largest at one of the ends.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from advnorm.bounds import interval_kernels
from advnorm.bounds.box import Box, between
from advnorm.bounds.interval import layer_rule

_INCREASING: tuple[type[nn.Module], ...] = (
    nn.ReLU6,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.LogSigmoid,
    nn.Tanh,
    nn.Softsign,
    nn.SELU,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
)


@layer_rule(nn.ReLU)
def relu(layer: nn.ReLU, box: Box) -> Box:
    """Map both ends, in one function of its own."""
    return interval_kernels.relu(box)


@layer_rule(*_INCREASING)
def increasing(layer: nn.Module, box: Box) -> Box:
    """Map both ends."""
    apply = _pure(layer)
    clean = None if box.clean is None else apply(box.clean)
    return between(clean, apply(box.lower), apply(box.upper))


@layer_rule(nn.Softplus)
def softplus(layer: nn.Softplus, box: Box) -> Box:
    """Map both ends; above its threshold PyTorch's falls back onto x, by a hair."""
    at = layer.threshold / layer.beta
    lower, upper = box.lower, box.upper
    low, high = layer(lower), layer(upper)
    fallen = torch.minimum(low, lower.clamp(min=at))
    low = torch.where(upper > at, fallen, low)
    clean = None if box.clean is None else layer(box.clean)
    risen = torch.maximum(high, layer(upper.clamp(max=at)))
    return between(clean, low, torch.where(lower <= at, risen, high))


@layer_rule(nn.ELU, nn.CELU)
def exponential(layer: nn.ELU, box: Box) -> Box:
    """Map both ends; with a negative alpha the function has a valley at 0."""
    return valley(layer, box, 0.0)


@layer_rule(nn.LeakyReLU, nn.PReLU)
def leaky(layer: nn.Module, box: Box) -> Box:
    """Map both ends; with a negative slope the function has a valley at 0."""
    return valley(layer, box, 0.0)


@layer_rule(nn.GELU)
def gelu(layer: nn.GELU, box: Box) -> Box:
    """Fall to the valley, rise after it; exact and tanh form have different ones."""
    at = -0.7517916243494656 if layer.approximate == "none" else -0.7524614220710162
    return valley(layer, box, at)


@layer_rule(nn.SiLU)
def silu(layer: nn.SiLU, box: Box) -> Box:
    """Fall to the valley, where 1 + exp(-x) = -x exp(-x); rise after it."""
    return valley(layer, box, -1.2784645427610738)


@layer_rule(nn.Mish)
def mish(layer: nn.Mish, box: Box) -> Box:
    """Fall to the valley, rise after it."""
    return valley(layer, box, -1.1924312145787)


@layer_rule(nn.Hardswish)
def hardswish(layer: nn.Hardswish, box: Box) -> Box:
    """Fall to the valley at -3/2, rise after it."""
    return valley(layer, box, -1.5)


def valley(layer: nn.Module, box: Box, at: float) -> Box:
    """Bound a function that is increasing, or falls until ``at`` and rises after it."""
    apply = _pure(layer)
    lower, upper = box.lower, box.upper
    one, other = apply(lower), apply(upper)
    bottom = apply(torch.minimum(lower.clamp(min=at), upper))
    clean = None if box.clean is None else apply(box.clean)
    return between(clean, torch.minimum(one, bottom), torch.maximum(one, other))


def _pure(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the layer as a function that leaves its argument alone."""
    inplace = bool(getattr(layer, "inplace", False))
    return (lambda x: layer(x.clone())) if inplace else layer
