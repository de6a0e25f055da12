"""Linear layers and convolutions built anew from another one: scaled, or narrower.

Every weight and bias is rounded once. The new layers have no gradients.
"""

from copy import copy
from typing import TypeVar

from torch import Tensor, nn

Linear = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
L = TypeVar("L", nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, Linear)


def with_norm(layer: Linear, factor: Tensor, shift: Tensor) -> Linear:
    r"""Return the layer followed by a norm: :math:`W' = f W` and :math:`b' = f b + s`."""
    bias, terms = shift.double(), shift.abs()
    if layer.bias is not None:
        bias = bias + factor.double() * layer.bias.double()
        terms = terms + factor.abs() * layer.bias.abs()
    factor = factor.view(-1, *(1,) * (layer.weight.ndim - 1))
    new = _like(layer, layer.weight * factor, bias)
    new.bias_terms = terms.detach()  # they may have cancelled out
    return new


def fewer_outputs(layer: Linear, kept: Tensor) -> Linear:
    """Return the layer with some of its outputs alone."""
    bias = None if layer.bias is None else layer.bias.index_select(0, kept)
    new = _like(layer, layer.weight.index_select(0, kept), bias)
    if hasattr(new, "bias_terms"):
        assert isinstance(new.bias_terms, Tensor)
        new.bias_terms = new.bias_terms.index_select(0, kept)
    return new


def fewer_inputs(layer: Linear, kept: Tensor, each: int) -> Linear:
    """Return the layer for some input features, ``each`` inputs apiece; the rest are 0."""
    out, _, *kernel = layer.weight.shape
    parts = layer.weight.reshape(out, -1, each, *kernel).index_select(1, kept)
    return _like(layer, parts.flatten(1, 2), layer.bias)


def _like(layer: L, weight: Tensor, bias: Tensor | None) -> L:
    """Return a layer with the settings of another one and with weights of its own."""
    new, dtype = copy(layer), layer.weight.dtype
    if isinstance(new, nn.Linear):
        new.out_features, new.in_features = weight.shape
    else:
        new.out_channels, new.in_channels = len(weight), weight.shape[1] * new.groups
    own = {"weight": weight, "bias": bias}
    new._parameters = {  # the copy shares the dictionary of the layer it comes from
        name: None if value is None else nn.Parameter(value.detach().to(dtype), False)
        for name, value in own.items()
    }
    return new
