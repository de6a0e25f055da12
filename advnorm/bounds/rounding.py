r"""The rounding error of each value, node by node: bounds hold for what is computed.

A model is computed in floating point: the value of a node is that of its function plus an
error :math:`|\delta_i| \le \rho_i` with

.. math:: \rho_i = 4\, u\, T_i,

the unit roundoff u and the size :math:`T_i` of the terms that the value is the sum of. In
``(x + 1e6) - 1e6`` the terms are a million times as large as what is left, and u of them is
an error that no margin may leave out. Verification therefore widens the box of every node
by :math:`\rho_i`, and a linear bound that goes back through a node with coefficients
:math:`a_i` falls by :math:`|a_i|^\top \rho_i`. Training does neither.

The size of a product's terms is bounded by :math:`\min(\|W_j\|_1 \|h\|_\infty,
\|W_j\|_2 \|h\|_2) + |b_j|`, which needs no second product. An operation gives the size of
its terms by its rule ``rounding``.

A verdict also subtracts what rounding may cost a logit, :math:`512\, u\, T`. Here the terms
of the last linear layer or convolution are :math:`|W| (|m| + r) + |b|`. From there to the
logits values may still be moved, scaled, averaged, added up or activated, and the sizes of
their terms go the same way, by absolute coefficients and by the steepest slope of an
activation: an operation's rule ``size``. Anything else begins anew, with the size of the
values themselves.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from advnorm.bounds.box import Box
from advnorm.bounds.graph import Graph, Node
from advnorm.bounds.operations import Call, Operation
from advnorm.bounds.operations.shapes import is_dropping

UNITS = 4
"""Units of roundoff that one node may cost, times the size of its terms."""
SLACK = 512
"""Units of roundoff that a verdict subtracts, times the size of a logit's terms."""


def counts_rounding(images: Box) -> bool:
    """Tell whether rounding counts: in verification it does, in training it does not."""
    return images.copies == 1 and not torch.is_grad_enabled()


def widen(box: Box, error: Tensor | None, *, fresh: bool = False) -> Box:
    """Return a box that holds the values with their error.

    A ``fresh`` radius belongs to this box alone, and is written to.
    """
    if error is None:
        return box
    ball = box.ball and box.ball.loosened(error)
    radius = box.radius.add_(error) if fresh else box.radius + error
    return replace(box, radius=radius, ball=ball)


def image_error(images: Box) -> Tensor:
    """Return what rounding may cost the ends of a ball around images."""
    return _unit(images.radius) / 2 * images.magnitude


def node_error(operation: Operation, call: Call, box: Box) -> Tensor | None:
    """Return a bound on the rounding error of a node's value; ``None`` where exact.

    ``box`` is that of the value. The shape is the value's, or one that broadcasts to it.
    """
    if operation.rounding is None:
        return None
    call = call._replace(args=tuple(map(_without_terms, call.args)))
    boxes = [a for a in call.args if isinstance(a, Box)]
    coarsest = max(_unit(value.radius) for value in (box, *boxes))
    return (coarsest * operation.rounding(call, box)).to(box.radius.dtype)


def _without_terms(value: Any) -> Any:
    return replace(value, terms=None) if isinstance(value, Box) else value


def _unit(value: Tensor) -> float:
    return UNITS * torch.finfo(value.dtype).eps / 2


def logit_slack(terms: Tensor, eps: float) -> Tensor:
    """Return what rounding may cost logits; ``eps`` is the type's."""
    return SLACK * eps / 2 * terms


def tail_nodes(graph: Graph) -> set[int]:
    """Return the nodes from the last linear layers on."""
    nodes, left = set[int](), [graph.output]
    while left:
        index = left.pop()
        node = graph.nodes[index]
        if index in nodes or not _has_size(node):
            continue
        nodes.add(index)
        left.extend(() if node.operation.is_product else node.inputs)
    return nodes


def _has_size(node: Node) -> bool:
    drops = node.kind == "layer" and is_dropping(node.layer)
    return node.operation.size is not None and not drops


def with_terms(node: Node, call: Call, box: Box) -> Box:
    """Return a node's box with the sizes of its terms, given those of its inputs."""
    assert node.operation.size is not None
    return replace(box, terms=node.operation.size(call).expand(box.shape))
