r"""Smaller graphs with the same bounds, for verification: fewer and narrower layers.

- A norm with fixed moments, :math:`z \mapsto f z + s`, is folded into the linear layer or
  convolution before it: :math:`W' = f W` and :math:`b' = f b + s`, each rounded once.
- A sum with the number 0 is the identity: ``sum(parts)`` begins with one.
- A feature that ReLU sends to zero for *every* image of the call is left out of the layer
  that computes it and of the layer that reads it. One walk over the hull of all images, a
  box that holds every admissible one, tells which: intervals only grow with the box, so
  what is off there is off for each image. Networks of certified training have many.

Both are exact but for rounding. The graph that comes out is not differentiable.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from advnorm.bounds.box import Box, InputSet, between, input_box
from advnorm.bounds.graph import Graph, Node, Ref
from advnorm.bounds.interval import interval_bounds
from advnorm.bounds.reduced_layers import (
    Linear,
    fewer_inputs,
    fewer_outputs,
    with_norm,
)

ROUNDING = 512
"""Units of roundoff, times its magnitude, by which a feature has to stay below zero."""

Readers = dict[int, list[int]]


def hull(clean: Tensor, threat: InputSet) -> Box:
    """Return the smallest box that holds the boxes of all images.

    It has several rows, all alike, and as many as no side of an image: so what mixes
    samples cannot pass for something else.
    """
    smallest, largest = (
        input_box(x, threat) for x in (clean.amin(0, True), clean.amax(0, True))
    )
    box = between(None, smallest.lower, largest.upper)
    rows = next(n for n in (2, 3, 5, 7, 11, 13, 17, 19) if n not in clean.shape[1:])
    return Box(torch.cat([box.lead] * rows), torch.cat([box.radius] * rows))


class SimplifiedGraph(NamedTuple):
    """A graph, the entries per sample of its largest value, and its number of outputs."""

    graph: Graph
    widest: int
    outputs: int


def simplify(graph: Graph, images: Box) -> SimplifiedGraph:
    """Return a smaller graph whose bounds are the same for every box inside ``images``."""
    boxes = interval_bounds(graph, images)
    nodes, readers = list(graph.nodes), _readers(graph)
    nodes = [_without_zero(node) for node in nodes]
    for index in range(len(nodes)):
        _fold(nodes, index, boxes, readers)
    for index in range(len(nodes)):
        _prune(nodes, index, boxes, readers)
    sizes = [box.shape[1:].numel() for box in boxes if isinstance(box, Box)]
    return SimplifiedGraph(replace(graph, nodes=tuple(nodes)), max(sizes), sizes[-1])


def _without_zero(node: Node) -> Node:
    """Replace the sum of a value and zero, with which ``sum`` begins, by the identity."""
    others = [value for value in node.args if not isinstance(value, Ref)]
    is_sum = node.function in ("add", "iadd") and len(node.args) == 2 and not node.kwargs
    if not is_sum or len(node.inputs) != 1 or len(others) != 1 or not _is_zero(others[0]):
        return node
    return Node(
        "layer", node.name, nn.Identity(), args=(Ref(node.inputs[0]),), inputs=node.inputs
    )


def _is_zero(value: object) -> bool:
    return type(value) in (int, float) and value == 0


def _readers(graph: Graph) -> Readers:
    """Return which nodes take each node's value; the model's own output has one more."""
    readers: Readers = {index: [] for index in range(len(graph.nodes))}
    for index, node in enumerate(graph.nodes):
        for ref in node.refs:
            readers[ref.index].append(index)
    readers[graph.output].append(len(graph.nodes))
    return readers


def _fold(nodes: list[Node], index: int, boxes: list[Any], readers: Readers) -> None:
    """Fold a norm into the layer before it, and leave the identity in its place."""
    norm = nodes[index]
    if norm.operation.channel_affine is None:
        return
    (source,) = norm.inputs
    layer = _linear(nodes[source], boxes[source])
    if layer is not None and readers[source] == [index]:
        factor, shift = norm.operation.channel_affine(norm.target, boxes[source])
        layer = with_norm(layer, factor.flatten(), shift.flatten())
        nodes[source] = replace(nodes[source], target=layer)
        nodes[index] = replace(norm, target=nn.Identity())


def _prune(nodes: list[Node], index: int, boxes: list[Any], readers: Readers) -> None:
    """Leave out the features that a ReLU sends to zero, before it and after it."""
    if not nodes[index].operation.zeroes_negatives:
        return
    (source,) = nodes[index].inputs
    producer, reader = _producer(nodes, source, readers), _reader(nodes, index, readers)
    if producer is None or reader is None:
        return
    before = _linear(nodes[producer], boxes[source])
    after = _linear(nodes[reader], boxes[nodes[reader].inputs[0]])
    if before is None or after is None:
        return
    alive = _alive(boxes[source])
    if bool(alive.all()):
        return
    kept = alive.nonzero().squeeze(1)
    each = after.weight.shape[1] // len(alive)  # several inputs a feature where flattened
    nodes[producer] = replace(nodes[producer], target=fewer_outputs(before, kept))
    after = fewer_inputs(after, kept, each)
    nodes[reader] = replace(nodes[reader], target=after)


def _alive(box: Box) -> Tensor:
    """Tell which features of a ReLU's input may be above zero; one is always kept."""
    size = box.magnitude
    rounding = ROUNDING * torch.finfo(size.dtype).eps / 2 * size
    off = box.upper + rounding <= 0  # what is not a number is not off
    alive = (~off).transpose(0, 1).flatten(1).any(1)
    alive[0] = alive[0] | ~alive.any()
    return alive


def _linear(node: Node, box: Box) -> Linear | None:
    """Return the layer of a node if its features, and those of ``box``, are dimension 1."""
    if not node.operation.is_product:
        return None
    if isinstance(node.layer, nn.Linear):
        return node.layer if len(box.shape) == 2 else None
    return node.target if node.target.groups == 1 else None


def _producer(nodes: list[Node], index: int, readers: Readers) -> int | None:
    """Return the node that computes a value, past identities."""
    while len(readers[index]) == 1:
        if not nodes[index].operation.identity:
            return index
        (index,) = nodes[index].inputs
    return None


def _reader(nodes: list[Node], index: int, readers: Readers) -> int | None:
    """Return the node that reads a value, past those that keep its features apart."""
    while len(readers[index]) == 1 and readers[index][0] < len(nodes):
        (index,) = readers[index]
        if not (nodes[index].operation.identity or nodes[index].operation.flattens):
            return index
    return None
