r"""How far rounding takes each value off, node by node: bounds are of what is computed.

A model is computed in floating point: the value of a node is that of its function plus an
error :math:`|\delta_i| \le \rho_i` with

.. math:: \rho_i = 4\, u\, T_i,

the unit roundoff u and the size :math:`T_i` of the terms that the value is the sum of. In
``(x + 1e6) - 1e6`` the terms are a million times as large as what is left, and u of them is
an error that no margin may leave out. Verification therefore widens the box of every node
by :math:`\rho_i`, and a linear bound that goes back through a node with coefficients
:math:`a_i` falls by :math:`|a_i|^\top \rho_i`. Training does neither.

The size of a product's terms is bounded by :math:`\min(\|W_j\|_1 \|h\|_\infty,
\|W_j\|_2 \|h\|_2) + |b_j|`, which needs no second product.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.bounds.box import Box
from advnorm.bounds.graph import Node
from advnorm.bounds.magnitudes import ACTIVATIONS, PRODUCTS, terms
from advnorm.bounds.operations import HAND_ON

UNITS = 4
"""Units of roundoff that one node may cost, times the size of its terms."""

_BENT = 10.0
"""Beyond it every activation is a line or flat, to all digits."""
_EXACT_LAYERS = (
    *HAND_ON,
    nn.Flatten,
    nn.Unflatten,
    nn.ReLU,
    nn.ReLU6,
    nn.Hardtanh,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.ZeroPad2d,
    nn.ReflectionPad2d,
    nn.ReplicationPad2d,
)
_ROUNDED_FUNCTIONS = frozenset(["add", "sub", "mul", "div", "mean", "sum"])
TermsRule = Callable[[Any, Box], Tensor]
LAYERS: dict[type[nn.Module], TermsRule] = {}
"""The terms of layers that divide by what they measure, from the box of their input."""


def terms_rule(*kinds: type[nn.Module]) -> Callable[[TermsRule], TermsRule]:
    """Return a decorator that enters the terms of these exact types."""

    def enter(rule: TermsRule) -> TermsRule:
        LAYERS.update(dict.fromkeys(kinds, rule))
        return rule

    return enter


def is_counted(images: Box) -> bool:
    """Tell whether rounding counts: in verification, not where bounds are trained on."""
    return images.copies == 1 and not torch.is_grad_enabled()


def widened(box: Box, error: Tensor | None, *, fresh: bool = False) -> Box:
    """Return a box that holds the values with their error.

    A ``fresh`` radius belongs to this box alone, and is written to.
    """
    if error is None:
        return box
    ball = box.ball and box.ball.loosened(error)
    radius = box.radius.add_(error) if fresh else box.radius + error
    return replace(box, radius=radius, ball=ball)


def is_fresh(node: Node) -> bool:
    """Tell whether a node's radius is a tensor of its own: a product makes a new one."""
    return node.kind == "layer" and type(node.layer) in PRODUCTS


def of_images(images: Box) -> Tensor:
    """Return what rounding may cost the ends of a ball around images."""
    return _unit(images.radius) / 2 * _reach(images)


def error(
    node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], box: Box
) -> Tensor | None:
    """Return how far rounding may take a node's value off; ``None`` where it is exact.

    The shape is the value's, or one that broadcasts to it.
    """
    if _is_exact(node):
        return None
    args = tuple(replace(a, terms=None) if isinstance(a, Box) else a for a in args)
    coarsest = max(_unit(a.radius) for a in (box, *args) if isinstance(a, Box))
    if node.kind == "function":
        sizes = terms(node, args, kwargs)
    else:
        sizes = _of_layer(node, args[0], box)
    return (coarsest * sizes).to(box.radius.dtype)


def _is_exact(node: Node) -> bool:
    if node.kind == "function":
        return node.function not in _ROUNDED_FUNCTIONS
    return type(node.layer) in _EXACT_LAYERS


def _of_layer(node: Node, before: Box, box: Box) -> Tensor:
    """Return the size of the terms of a layer's output."""
    layer: Any = node.layer
    if type(layer) in PRODUCTS:
        return _of_product(layer, before)
    if type(layer) in LAYERS:
        return LAYERS[type(layer)](layer, before)
    if type(layer) in ACTIVATIONS:  # what they do with a large input is no sum of it
        return _reach(box) + _reach(before).clamp(max=_BENT)
    return terms(node, (before,), {})


def _of_product(layer: Any, before: Box) -> Tensor:
    """Bound ``|W| |h| + |b|``; one number a sample and feature."""
    centre, radius, weight = before.centre, before.radius, layer.weight.flatten(1)
    bias = getattr(layer, "bias_terms", None)  # of a norm that was folded into the layer
    if bias is None and layer.bias is not None:
        bias = layer.bias.abs()
    if isinstance(layer, nn.Linear):
        reach = _reach(before)
        largest = reach.amax(-1, keepdim=True) * weight.abs().sum(1)
        length = torch.linalg.vector_norm(reach, dim=-1, keepdim=True)
        sizes = torch.minimum(largest, length * torch.linalg.vector_norm(weight, dim=1))
        return sizes if bias is None else sizes + bias
    sides = tuple(range(1, centre.ndim))
    largest = torch.maximum(centre.amax(sides), -centre.amin(sides)) + radius.amax(sides)
    sizes = largest.unsqueeze(1) * weight.abs().sum(1)
    sizes = sizes if bias is None else sizes + bias
    shaped: Tensor = sizes.view(*sizes.shape, *(1,) * (centre.ndim - 2))
    return shaped


def _reach(box: Box) -> Tensor:
    return box.centre.abs() + box.radius


def _unit(value: Tensor) -> float:
    return UNITS * torch.finfo(value.dtype).eps / 2
