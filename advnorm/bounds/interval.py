r"""Interval bound propagation (Gowal et al., 2019) over the traced graph.

The interval rule of an operation (:mod:`advnorm.bounds.operations`) takes the layer and the
:class:`~advnorm.bounds.box.Box` of its input and returns that of its output.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from advnorm import matrix_products
from advnorm.bounds.box import Box
from advnorm.bounds.concretize import concretize
from advnorm.bounds.graph import Graph, Node, logits_node, walk
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations import LAYERS, UNKNOWN, Call
from advnorm.bounds.operations.arguments import refuse_settings
from advnorm.bounds.rounding import (
    counts_rounding,
    image_error,
    logit_slack,
    node_error,
    tail_nodes,
    widen,
    with_terms,
)

FEW = 16
"""Most classes for which the margins of all pairs are computed, not of labels alone."""


class Margins(NamedTuple):
    """Lower bounds on ``z_y - z_j``, shape (batch, classes), and the clean logits.

    The column of the label is 0. The logits are ``None`` where the box holds no clean
    images.
    """

    lower: Tensor
    logits: Tensor | None


def propagate(node: Node, call: Call) -> Box:
    """Return the box of a node's value from those of its inputs."""
    if node.operation is UNKNOWN:
        raise unsupported(node)
    with naming(node):
        if node.kind == "layer":
            refuse_settings(call.target, node.operation.settings)
        box = node.operation.interval(call.target, *call.args, **call.kwargs)
        _refuse_mixing(box, call.boxes)
        _refuse_casts(box, call.boxes)
    return box


class Enclosure(NamedTuple):
    """The box of a node's value, and the error of that value by rounding."""

    box: Box
    error: Tensor | None


def enclose(node: Node, call: Call, *, counted: bool) -> Enclosure:
    """Return the box of what a node computes, rounding included where it counts."""
    box = propagate(node, call)
    if not counted:
        return Enclosure(box, None)
    with naming(node):
        off = node_error(node.operation, call, box)
        # a product's radius is a tensor of its own
        return Enclosure(widen(box, off, fresh=node.operation.is_product), off)


def _refuse_casts(output: Box, inputs: Iterable[Box]) -> None:
    """Refuse an operation that casts its input to another type: no rule covers that."""
    kind = output.lead.dtype
    for box in inputs:
        before = box.lead.dtype
        if not kind.is_floating_point or torch.promote_types(before, kind) != kind:
            raise NotImplementedError(
                f"it casts {before} to {kind}, and no rule covers that rounding: keep the "
                "dtype of the images, or a wider one"
            )


def _refuse_mixing(output: Box, inputs: Iterable[Box]) -> None:
    """Refuse an output that no longer has one row per sample."""
    rows = next((len(box.radius) for box in inputs), None)
    kept = output.shape[0] if len(output.shape) else 0
    if rows is not None and kept != rows:
        raise NotImplementedError(
            f"it makes {kept} rows of {rows} samples, and a certificate is of each sample "
            "alone: leave the first dimension as it is"
        )


@contextmanager
def naming(node: Node) -> Iterator[None]:
    """Add the name of the layer or function to an error."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (ValueError, RuntimeError, TypeError, IndexError) as error:
        what = f"function {node.name!r}"
        if node.kind == "layer":
            what = f"layer {node.name!r} ({type(node.target).__name__})"
        is_ours = isinstance(error, ValueError | NotImplementedError)
        kind = type(error) if is_ours else NotImplementedError
        raise kind(f"{what}: {error}") from error


def unsupported(node: Node) -> NotImplementedError:
    """Return the error that names a layer without an entry, and those that have one."""
    names = ", ".join(sorted({kind.__name__ for kind in LAYERS}))
    return NotImplementedError(
        f"no certificate for layer {node.name!r} ({type(node.layer).__name__}): layers "
        f"that have one are {names}, of exactly these types"
    )


def interval_bounds(graph: Graph, images: Box, *, keep: bool = True) -> list[Any]:
    """Return the box of every node (constants and sizes are themselves)."""
    counted = counts_rounding(images)
    images = widen(images, image_error(images)) if counted else images

    def rule(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Box:
        return enclose(node, Call(node.target, args, kwargs), counted=counted).box

    return walk(graph, images, rule, keep=keep)


def ibp_margins(graph: Graph, images: Box, labels: Tensor) -> Margins:
    r"""Interval bound propagation (Gowal et al., 2019): fast and loose.

    The last linear layer is folded into the margins.

    With :math:`z = W h + b` and :math:`h \in [m - r, m + r]`,

    .. math::
        z_y - z_j \ge (W_y - W_j) m + b_y - b_j - |W_y - W_j| r
    """
    last = _bound_logits(graph, images, counted=counts_rounding(images))
    return margins_at(last.node, last.input, last.output, labels)


def ibp_margins_and_rounding(
    graph: Graph, images: Box, labels: Tensor
) -> tuple[Margins, Tensor]:
    """Return :func:`ibp_margins`, and what rounding may cost each logit."""
    last = _bound_logits(graph, images, tail_nodes(graph), counted=counts_rounding(images))
    return margins_at(last.node, last.input, last.output, labels), last.rounding


def evaluate_graph(graph: Graph, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the graph's logits of the images alone, and what rounding may cost them."""
    exact = Box(images, torch.zeros_like(images))
    last = _bound_logits(graph, exact, tail_nodes(graph), counted=False)
    _check_logits(last.output)
    return last.output.centre, last.rounding


class _LogitsStep(NamedTuple):
    """The node that computes the logits, the box of its input and its own."""

    node: Node
    input: Box
    output: Box
    eps: float
    """Of the coarser type, the images' or the logits'."""

    @property
    def rounding(self) -> Tensor:
        return logit_slack(self.output.size, self.eps)


def _bound_logits(
    graph: Graph, images: Box, sized: Collection[int] = (), *, counted: bool
) -> _LogitsStep:
    """Bound all nodes up to the logits; boxes of ``sized`` nodes get their terms."""
    end, are_sized = graph.nodes[logits_node(graph)], {id(graph.nodes[n]) for n in sized}
    steps: list[tuple[Node, Box, Box]] = []
    images = widen(images, image_error(images)) if counted else images

    def rule(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Box:
        call = Call(node.target, args, kwargs)
        box = enclose(node, call, counted=counted).box
        if id(node) in are_sized:
            with naming(node):
                box = with_terms(node, call, box)
        if node is end and args and isinstance(args[0], Box):
            steps.append((node, args[0], box))
        return box

    output = walk(graph, images, rule)[graph.output]
    eps = max(torch.finfo(box.radius.dtype).eps for box in (images, output))
    if steps and steps[0][2].shape == output.shape:
        return _LogitsStep(*steps[0], eps)
    return _LogitsStep(graph.nodes[graph.output], output, output, eps)


def margins_at(node: Node, before: Box, output: Box, labels: Tensor) -> Margins:
    """Return :func:`ibp_margins` from the boxes of the last node's input and output."""
    _check_logits(output)
    if _is_linear(node):
        return _folded(node.target, before, labels)
    return _unfolded(output, labels)


def _check_logits(output: Box) -> None:
    if len(output.shape) != 2:
        raise ValueError(
            "a certificate needs a classifier: the model must return logits of shape "
            f"(batch, classes), not {tuple(output.shape)}"
        )


def _is_linear(node: Node) -> bool:
    return node.kind == "layer" and type(node.target) is nn.Linear


def _folded(layer: nn.Linear, box: Box, labels: Tensor) -> Margins:
    _check_labels(labels)
    logits = layer(box.lead)
    clean, centre = (None, logits) if box.copies == 1 else torch.split(logits, len(labels))
    margins = _difference(centre, labels) - _spread(layer.weight, box.radius, labels)
    if box.ball is not None:
        spread = (layer.weight[labels][:, None] - layer.weight).transpose(0, 1)
        bias = layer.weight.new_zeros(spread.shape[:2])
        if layer.bias is not None:
            bias = (layer.bias[labels][:, None] - layer.bias).T
        margins = torch.maximum(margins, concretize(box, LinearForms(spread, bias)).T)
    return Margins(margins, clean)


def _spread(weight: Tensor, radius: Tensor, labels: Tensor) -> Tensor:
    """Return ``|W_y - W_j| r``: of all pairs by one product, where there are few."""
    if len(weight) > FEW:
        spread = weight[labels][:, None] - weight  # (batch, classes, features)
        return torch.matmul(spread.abs(), radius[..., None])[..., 0]
    pairs = (weight[:, None] - weight).abs().flatten(0, 1)
    spreads = matrix_products.linear(radius, pairs)
    spreads = spreads.view(len(radius), len(weight), len(weight))
    own = labels.view(-1, 1, 1).expand(-1, 1, len(weight))
    return spreads.gather(1, own).squeeze(1)


def _unfolded(box: Box, labels: Tensor) -> Margins:
    _check_labels(labels)
    own = labels[:, None]
    margins = (box.lower.gather(1, own) - box.upper).scatter(1, own, 0.0)
    return Margins(margins, box.clean)


def _difference(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels[:, None]) - logits


def _check_labels(labels: Tensor) -> None:
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            "labels are one class number per image: mixed labels have no margin"
        )
