r"""Smaller graphs with the same bounds, for verification: fewer and narrower layers.

- A norm with fixed moments, :math:`z \mapsto f z + s`, is folded into the linear layer or
  convolution before it: :math:`W' = f W` and :math:`b' = f b + s`, each rounded once.
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

from advnorm.bounds import linear_table
from advnorm.bounds.box import Box, InputSet, between, input_box
from advnorm.bounds.graph import Graph, Node
from advnorm.bounds.interval import interval_bounds
from advnorm.bounds.reduced_layers import (
    LINEAR,
    Linear,
    channels_last,
    fewer_inputs,
    fewer_outputs,
    with_norm,
)

ROUNDING = 512
"""Units of roundoff, times its magnitude, by which a feature has to stay below zero."""

_SAME = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
_ON_THE_WAY = (*_SAME, nn.Flatten)
Readers = dict[int, list[int]]


def hull(clean: Tensor, threat: InputSet) -> Box:
    """Return the smallest box that holds the boxes of all images.

    It has several rows, all alike, and as many as no side of an image: so what mixes
    samples cannot pass for something else.
    """
    least, most = (input_box(x, threat) for x in (clean.amin(0, True), clean.amax(0, True)))
    box = between(None, least.lower, most.upper)
    rows = next(n for n in (2, 3, 5, 7, 11, 13, 17, 19) if n not in clean.shape[1:])
    return Box(torch.cat([box.lead] * rows), torch.cat([box.radius] * rows))


class SimplifiedGraph(NamedTuple):
    """A graph, the entries a sample of its largest value, and the number of its outputs."""

    graph: Graph
    widest: int
    outputs: int


def simplify(graph: Graph, images: Box) -> SimplifiedGraph:
    """Return a smaller graph whose bounds are the same for every box inside ``images``."""
    found = interval_bounds(graph, images)
    nodes, readers = list(graph.nodes), _readers(graph)
    for index in range(len(nodes)):
        _fold(nodes, index, found, readers)
    for index in range(len(nodes)):
        _leave_out(nodes, index, found, readers)
    sizes = [box.shape[1:].numel() for box in found if isinstance(box, Box)]
    return SimplifiedGraph(
        replace(graph, nodes=tuple(map(_laid_out, nodes))), max(sizes), sizes[-1]
    )


def _laid_out(node: Node) -> Node:
    """Lay out a convolution's weights as its device likes them."""
    if node.kind != "layer" or type(node.layer) is not nn.Conv2d:
        return node
    on_cpu = node.layer.weight.device.type == "cpu"
    return replace(node, target=channels_last(node.layer)) if on_cpu else node


def _readers(graph: Graph) -> Readers:
    """Return which nodes take each node's value; the model's own output has one more."""
    found: Readers = {index: [] for index in range(len(graph.nodes))}
    for index, node in enumerate(graph.nodes):
        for ref in node.refs:
            found[ref.index].append(index)
    found[graph.output].append(len(graph.nodes))
    return found


def _fold(nodes: list[Node], index: int, found: list[Any], readers: Readers) -> None:
    """Fold a norm into the layer before it, and leave the identity in its place."""
    norm = nodes[index]
    if norm.kind != "layer" or type(norm.layer) not in linear_table.NORMS:
        return
    (source,) = norm.inputs
    layer = _linear(nodes[source], found[source])
    if layer is not None and readers[source] == [index]:
        factor, shift = linear_table.factor_and_shift(norm.target, found[source])
        layer = with_norm(layer, factor.flatten(), shift.flatten())
        nodes[source] = replace(nodes[source], target=layer)
        nodes[index] = replace(norm, target=nn.Identity())


def _leave_out(nodes: list[Node], index: int, found: list[Any], readers: Readers) -> None:
    """Leave out the features that a ReLU sends to zero, before it and after it."""
    if nodes[index].kind != "layer" or type(nodes[index].layer) is not nn.ReLU:
        return
    (given,) = nodes[index].inputs
    maker, reader = _maker(nodes, given, readers), _reader(nodes, index, readers)
    if maker is None or reader is None:
        return
    before = _linear(nodes[maker], found[given])
    after = _linear(nodes[reader], found[nodes[reader].inputs[0]])
    if before is None or after is None:
        return
    alive = _alive(found[given])
    if bool(alive.all()):
        return
    kept = alive.nonzero().squeeze(1)
    each = after.weight.shape[1] // len(alive)  # several inputs a feature where flattened
    nodes[maker] = replace(nodes[maker], target=fewer_outputs(before, kept))
    after = fewer_inputs(after, kept, each)
    nodes[reader] = replace(nodes[reader], target=after)


def _alive(box: Box) -> Tensor:
    """Tell which features of a ReLU's input may be above zero; one is always kept."""
    reach = box.centre.abs() + box.radius
    rounding = ROUNDING * torch.finfo(reach.dtype).eps / 2 * reach
    off = box.upper + rounding <= 0  # what is not a number is not off
    alive = (~off).transpose(0, 1).flatten(1).any(1)
    alive[0] = alive[0] | ~alive.any()
    return alive


def _linear(node: Node, box: Box) -> Linear | None:
    """Return the layer of a node if its features, and those of ``box``, are dimension 1."""
    if node.kind != "layer" or type(node.layer) not in LINEAR:
        return None
    if isinstance(node.layer, nn.Linear):
        return node.layer if len(box.shape) == 2 else None
    return node.target if node.target.groups == 1 else None


def _maker(nodes: list[Node], index: int, readers: Readers) -> int | None:
    """Return the node that computes a value, past those that hand it on unchanged."""
    while len(readers[index]) == 1:
        if nodes[index].kind != "layer" or type(nodes[index].layer) not in _SAME:
            return index
        (index,) = nodes[index].inputs
    return None


def _reader(nodes: list[Node], index: int, readers: Readers) -> int | None:
    """Return the node that reads a value, past those that keep its features apart."""
    while len(readers[index]) == 1 and readers[index][0] < len(nodes):
        (index,) = readers[index]
        if nodes[index].kind != "layer" or type(nodes[index].layer) not in _ON_THE_WAY:
            return index
    return None
