r"""How large the terms are that a logit is the sum of: rounding is measured by them.

Of a linear layer or a convolution they are :math:`|W| (|m| + r) + |b|`. From the last of
them to the logits values may still be moved, scaled, averaged, added up or activated, and
the sizes of their terms go the same way, by absolute coefficients and by the steepest slope
of an activation: an operation's rule ``size``. Anything else begins anew, with the size of
the values themselves.
"""

from dataclasses import replace

from torch import Tensor

from advnorm.bounds.box import Box
from advnorm.bounds.graph import Graph, Node
from advnorm.bounds.operations import Call
from advnorm.bounds.operations.shapes import is_dropping

SLACK = 512
"""Units of roundoff that a verdict subtracts, times the size of the terms."""


def rounding(terms: Tensor, eps: float) -> Tensor:
    """Return what rounding may cost sums of terms of these sizes; ``eps`` is the type's."""
    return SLACK * eps / 2 * terms


def tail(graph: Graph) -> set[int]:
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
