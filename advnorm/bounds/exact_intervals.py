"""The nodes near the input whose interval bounds are exact."""

from typing import NamedTuple

from advnorm.bounds.graph import Graph, Node


class ExactNodes(NamedTuple):
    """``boxes``: the images, scaled and shifted entry by entry; ``exact``: one layer more.

    A box of images is a box there too; and one affine layer takes a box to values whose
    intervals are the best that there are.
    """

    boxes: frozenset[int]
    exact: frozenset[int]


def exact_nodes(graph: Graph) -> ExactNodes:
    """Find the nodes whose interval bounds are exact for a box of images."""
    boxes: set[int] = set()
    exact: set[int] = set()
    for index, node in enumerate(graph.nodes):
        if node.kind == "input":
            boxes.add(index)
        elif len(node.inputs) == 1:
            entrywise, (source,) = node.operation.is_entrywise, node.inputs
            if source in boxes and entrywise:
                boxes.add(index)
            elif (source in boxes and _is_mixing(node)) or (source in exact and entrywise):
                exact.add(index)
    return ExactNodes(frozenset(boxes), frozenset(boxes | exact))


def _is_mixing(node: Node) -> bool:
    """Tell whether each entry is an affine function, no entry before it read twice."""
    plain = getattr(node.target, "padding_mode", "zeros") == "zeros"
    return node.operation.is_mixing and plain
