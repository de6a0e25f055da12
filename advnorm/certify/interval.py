r"""Interval bound propagation (Gowal et al., 2019) over the traced graph.

One rule a layer type, in a table by exact type (:data:`LAYERS`) or by a function's name
(:data:`FUNCTIONS`). A rule takes the layer and the :class:`~advnorm.certify.box.Box` of its
input and returns that of its output; the rules are in the modules ``interval_*``.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.certify.box import Box
from advnorm.certify.functions import POSITIVE
from advnorm.certify.graph import Graph, Node, walk
from advnorm.certify.least import least
from advnorm.certify.linear import Rows

FEW = 16
"""Classes whose pairs are all looked at, though each image asks for those of its label."""

LayerRule = Callable[[Any, Box], Box]
FunctionRule = Callable[..., Box]
LAYERS: dict[type[nn.Module], LayerRule] = {}
FUNCTIONS: dict[str, FunctionRule] = {}


def layer_rule(*kinds: type[nn.Module]) -> Callable[[LayerRule], LayerRule]:
    """Return a decorator that enters a rule for these exact types."""

    def enter(rule: LayerRule) -> LayerRule:
        LAYERS.update(dict.fromkeys(kinds, rule))
        return rule

    return enter


def function_rule(*names: str) -> Callable[[FunctionRule], FunctionRule]:
    """Return a decorator that enters a rule for functions by name."""

    def enter(rule: FunctionRule) -> FunctionRule:
        FUNCTIONS.update(dict.fromkeys(names, rule))
        return rule

    return enter


class Bounded(NamedTuple):
    """Lower bounds on ``z_y - z_j``, shape (batch, classes), and the clean logits.

    The column of the label is 0. The logits are ``None`` where nothing rode along.
    """

    margins: Tensor
    logits: Tensor | None


def propagate(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Box:
    """Return the box of a node's value from those of its inputs."""
    if node.kind == "function":
        if node.function in POSITIVE:
            return FUNCTIONS["positive"](node, *args, **kwargs)
        return FUNCTIONS[node.function](*args, **kwargs)
    rule = LAYERS.get(type(node.layer))
    if rule is None:
        raise unsupported(node, list(LAYERS))
    try:
        return rule(node.layer, args[0])
    except (ValueError, NotImplementedError) as error:
        text = f"layer {node.name!r} ({type(node.layer).__name__}): {error}"
        raise type(error)(text) from error


def unsupported(node: Node, kinds: list[type[nn.Module]]) -> NotImplementedError:
    """Return the error that names a layer without a rule, and the layers that have one."""
    names = ", ".join(sorted({kind.__name__ for kind in kinds}))
    return NotImplementedError(
        f"no certificate for layer {node.name!r} ({type(node.layer).__name__}): layers "
        f"that have one are {names}, of exactly these types"
    )


def boxes(graph: Graph, images: Box, *, keep: bool = True) -> list[Any]:
    """Return the box of every node (constants and sizes are themselves)."""
    return walk(graph, images, propagate, keep=keep)


def bounded(graph: Graph, images: Box, labels: Tensor) -> Bounded:
    r"""Return the interval bound of all margins, the last linear layer folded in.

    With :math:`z = W h + b` and :math:`h \in [m - r, m + r]`,

    .. math::
        z_y - z_j \ge (W_y - W_j) m + b_y - b_j - |W_y - W_j| r
    """
    return bounded_logits(graph, images, labels)[0]


def bounded_logits(graph: Graph, images: Box, labels: Tensor) -> tuple[Bounded, Box]:
    """Return :func:`bounded`, and the box of the logits."""
    end = graph.nodes[graph.output]
    given: list[Box] = []

    def rule(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Box:
        if node is end and args and isinstance(args[0], Box):
            given.append(args[0])
        return propagate(node, args, kwargs)

    box = walk(graph, images, rule)[graph.output]
    return margins_of(end, given[0] if given else box, box, labels), box


def margins_of(end: Node, given: Box, output: Box, labels: Tensor) -> Bounded:
    """Return :func:`bounded` from the boxes of the last node's input and of its output."""
    if end.kind == "layer" and type(end.target) is nn.Linear:
        return _folded(end.target, given, labels)
    return _unfolded(output, labels)


def _folded(layer: nn.Linear, box: Box, labels: Tensor) -> Bounded:
    _check(labels)
    logits = layer(box.lead)
    clean, centre = (None, logits) if box.copies == 1 else torch.split(logits, len(labels))
    margins = _difference(centre, labels) - _reach(layer.weight, box.radius, labels)
    if box.ball is not None:
        spread = (layer.weight[labels][:, None] - layer.weight).transpose(0, 1)
        bias = layer.weight.new_zeros(spread.shape[:2])
        if layer.bias is not None:
            bias = (layer.bias[labels][:, None] - layer.bias).T
        margins = torch.maximum(margins, least(box, Rows(spread, bias)).T)
    return Bounded(margins, clean)


def _reach(weight: Tensor, radius: Tensor, labels: Tensor) -> Tensor:
    """Return ``|W_y - W_j| r``: of all pairs by one product, where there are few."""
    if len(weight) > FEW:
        spread = weight[labels][:, None] - weight  # (batch, classes, features)
        return torch.matmul(spread.abs(), radius[..., None])[..., 0]
    pairs = (weight[:, None] - weight).abs().flatten(0, 1)
    reach = F.linear(radius, pairs).view(len(radius), len(weight), len(weight))
    own = labels.view(-1, 1, 1).expand(-1, 1, len(weight))
    return reach.gather(1, own).squeeze(1)


def _unfolded(box: Box, labels: Tensor) -> Bounded:
    if len(box.shape) != 2:
        raise ValueError(
            f"logits are of shape (batch, classes), not {tuple(box.shape)}: certificates "
            "are of classifiers"
        )
    _check(labels)
    own = labels[:, None]
    margins = (box.lower.gather(1, own) - box.upper).scatter(1, own, 0.0)
    return Bounded(margins, box.clean)


def _difference(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels[:, None]) - logits


def _check(labels: Tensor) -> None:
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            "labels are one class number an image: mixed labels have no margin"
        )
