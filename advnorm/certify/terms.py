r"""How large the terms are that a logit is the sum of: rounding is measured by them.

Of a linear layer or a convolution they are :math:`|W| (|m| + r) + |b|`. From the last of
them to the answer values may still be moved, scaled, averaged and added up, and the sizes
of their terms go the same way, by absolute coefficients. Anything else begins anew, with
the size of the values themselves.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.certify.box import Box
from advnorm.certify.functions import HAND_ON, POSITIVE
from advnorm.certify.graph import Graph, Node
from advnorm.norms import BatchNorm, BorrowedNorm, MixtureNorm

SLACK = 512
"""Units of roundoff that a verdict subtracts, times the size of the terms."""

_PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POSITIVE = (
    *HAND_ON,
    nn.Flatten,
    nn.Unflatten,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.ZeroPad2d,
    nn.ReflectionPad2d,
    nn.ReplicationPad2d,
)
_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    BatchNorm,
    BorrowedNorm,
    MixtureNorm,
)
_SUMS = ("add", "sub", "mul", "div", "neg", "cat")


def rounding(terms: Tensor) -> Tensor:
    """Return what rounding may cost sums of terms of these sizes."""
    return SLACK * torch.finfo(terms.dtype).eps / 2 * terms


def tail(graph: Graph) -> set[int]:
    """Return the nodes from the last linear layers on, if only sums are behind them."""
    found, left = set[int](), [graph.output]
    while left:
        index = left.pop()
        node = graph.nodes[index]
        if index in found or not (_is_product(node) or _is_sum(node)):
            continue
        found.add(index)
        left.extend(() if _is_product(node) else node.inputs)
    return found


def with_terms(
    node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], box: Box
) -> Box:
    """Return a node's box with the sizes of its terms, those of its inputs being given."""
    if _is_product(node):
        return replace(box, terms=_product(node.target, args[0]))
    if node.kind == "layer":
        return replace(box, terms=_layer(node.layer, args[0].size))
    if node.function in POSITIVE:
        given, *rest = args
        return replace(box, terms=node.target(given.size, *rest, **kwargs).abs())
    return replace(box, terms=_sum(node.function, *args, **kwargs).expand(box.shape))


def _is_product(node: Node) -> bool:
    return node.kind == "layer" and type(node.layer) in _PRODUCTS


def _is_sum(node: Node) -> bool:
    if node.kind == "layer":
        drops = node.layer.training and getattr(node.layer, "p", False)
        return type(node.layer) in (*_POSITIVE, *_NORMS) and not drops
    return node.kind == "function" and node.function in (*POSITIVE, *_SUMS)


def _layer(layer: nn.Module, size: Tensor) -> Tensor:
    """Take sizes through a layer: a norm is asked for its factor and its shift."""
    if type(layer) in _POSITIVE:
        found: Tensor = layer(size)
        return found
    still, moved = (layer(torch.full_like(size, value)) for value in (0.0, 1.0))
    found = (moved - still).abs() * size + still.abs()
    return found


def _product(layer: Any, box: Box) -> Tensor:
    bias = None if layer.bias is None else layer.bias.abs()
    given, weight = box.centre.abs() + box.radius, layer.weight.abs()
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(given, weight, bias)
    found: Tensor = layer._conv_forward(given, weight, bias)
    return found


def _sum(name: str, *args: Any, **kwargs: Any) -> Tensor:
    """Do with sizes what a function does with values."""
    if name == "cat":
        boxes, *rest = args
        return torch.cat([_size(box) for box in boxes], *rest, **kwargs)
    sizes = [_size(value) for value in args]
    if name == "neg":
        (found,) = sizes
    elif name in ("add", "sub"):
        found = sizes[0] + abs(kwargs.get("alpha", 1)) * sizes[1]
    else:
        found = sizes[0] * sizes[1] if name == "mul" else sizes[0] / sizes[1]
    assert isinstance(found, Tensor)
    return found


def _size(value: Any) -> Any:
    return value.size if isinstance(value, Box) else abs(value)
