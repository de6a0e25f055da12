r"""How large the terms are that a logit is the sum of: rounding is measured by them.

Of a linear layer or a convolution they are :math:`|W| (|m| + r) + |b|`. From the last of
them to the answer values may still be moved, scaled, averaged, added up or activated, and
the sizes of their terms go the same way, by absolute coefficients and by the steepest slope
of an activation. Anything else begins anew, with the size of the values themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.bounds.box import Box
from advnorm.bounds.graph import Graph, Node
from advnorm.bounds.operations import AFFINE, HAND_ON, POSITIVE
from advnorm.norms import BatchNorm, BorrowedNorm, MixtureNorm

SLACK = 512
"""Units of roundoff that a verdict subtracts, times the size of the terms."""

PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POSITIVE = (
    *HAND_ON,
    nn.Flatten,
    nn.Unflatten,
    *AFFINE,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
)
_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    BatchNorm,
    BorrowedNorm,
    MixtureNorm,
)
_STEEPEST: dict[type[nn.Module], Callable[[Any], float]] = {
    **dict.fromkeys(
        (
            nn.ReLU,
            nn.ReLU6,
            nn.Hardtanh,
            nn.Hardsigmoid,
            nn.Sigmoid,
            nn.LogSigmoid,
            nn.Tanh,
            nn.Softsign,
            nn.Softplus,
            nn.CELU,
        ),
        lambda layer: 1.0,
    ),
    nn.LeakyReLU: lambda layer: max(1.0, abs(layer.negative_slope)),
    nn.PReLU: lambda layer: max(1.0, float(layer.weight.abs().max())),
    nn.ELU: lambda layer: max(1.0, abs(layer.alpha)),
    nn.SELU: lambda layer: 1.76,
    nn.GELU: lambda layer: 1.14,
    nn.SiLU: lambda layer: 1.1,
    nn.Mish: lambda layer: 1.1,
    nn.Hardswish: lambda layer: 1.5,
}
"""Slopes that an activation nowhere exceeds."""
ACTIVATIONS = frozenset(_STEEPEST)


def rounding(terms: Tensor, eps: float) -> Tensor:
    """Return what rounding may cost sums of terms of these sizes; ``eps`` is the type's."""
    return SLACK * eps / 2 * terms


def tail(graph: Graph) -> set[int]:
    """Return the nodes from the last linear layers on."""
    found, left = set[int](), [graph.output]
    while left:
        index = left.pop()
        node = graph.nodes[index]
        if index in found or not (_is_product(node) or _is_passed(node)):
            continue
        found.add(index)
        left.extend(() if _is_product(node) else node.inputs)
    return found


def with_terms(
    node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], box: Box
) -> Box:
    """Return a node's box with the sizes of its terms, those of its inputs being given."""
    return replace(box, terms=terms(node, args, kwargs).expand(box.shape))


def terms(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """Return the sizes of a node's terms, in a shape that broadcasts to its value's."""
    if _is_product(node):
        return _product(node.target, args[0])
    if node.kind == "layer":
        return _layer(node.layer, args[0].size)
    if node.function in POSITIVE:
        given, *rest = args
        found: Tensor = node.target(given.size, *rest, **kwargs)
        return found.abs()
    return torch.as_tensor(_SUMS[node.function](*args, **kwargs))


def _is_product(node: Node) -> bool:
    return node.kind == "layer" and type(node.layer) in PRODUCTS


def _is_passed(node: Node) -> bool:
    if node.kind == "layer":
        drops = node.layer.training and getattr(node.layer, "p", False)
        return type(node.layer) in (*_POSITIVE, *_NORMS, *_STEEPEST) and not drops
    return node.kind == "function" and node.function in (*POSITIVE, *_SUMS)


def _product(layer: Any, box: Box) -> Tensor:
    bias = None if layer.bias is None else layer.bias.abs()
    bias = getattr(layer, "bias_terms", bias)  # of a norm that was folded into the layer
    given, weight = box.centre.abs() + box.radius, layer.weight.abs()
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(given, weight, bias)
    found: Tensor = layer._conv_forward(given, weight, bias)
    return found


def _layer(layer: nn.Module, size: Tensor) -> Tensor:
    """Take sizes through a layer."""
    if type(layer) in _NORMS:
        return _norm(layer, size)
    if type(layer) in _STEEPEST:
        return _STEEPEST[type(layer)](layer) * size
    found: Tensor = layer(size)
    return found


def _norm(layer: Any, size: Tensor) -> Tensor:
    """Take sizes through a norm with fixed moments, whose mean is a term too."""
    if isinstance(layer, MixtureNorm):
        layer = layer.of(layer.route.domain)
    factor = torch.rsqrt(layer.running_var + layer.eps)
    factor = factor if layer.weight is None else factor * layer.weight.abs()
    shift = layer.running_mean.abs() * factor
    shift = shift if layer.bias is None else shift + layer.bias.abs()
    shape = (1, -1, *(1,) * (size.ndim - 2))
    found: Tensor = size * factor.view(shape) + shift.view(shape)
    return found


def _size(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return value
    return value.size if isinstance(value, Box) else abs(value)


def _add(one: Any, other: Any, *, alpha: float = 1) -> Any:
    return _size(one) + abs(alpha) * _size(other)


def _mul(one: Any, other: Any) -> Any:
    return _size(one) * _size(other)


def _div(box: Any, divisor: Any, *, rounding_mode: None = None) -> Any:
    return _size(box) / _size(divisor)


def _cat(tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> Tensor:
    return torch.cat([_size(box) for box in tensors], dim if axis is None else axis)


_SUMS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _add,
    "mul": _mul,
    "div": _div,
    "neg": _size,
    "cat": _cat,
}
"""What functions do with sizes, where they do something else than with values."""
