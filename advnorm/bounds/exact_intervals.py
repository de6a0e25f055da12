"""Which values are so near to the images that interval bounds of them are exact."""

from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.bounds.graph import Graph, Node

_KEEPS = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Flatten, nn.Unflatten)
_MIXES = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
)
_ELEMENTWISE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "contiguous",
        "flatten",
        "movedim",
        "permute",
        "reshape",
        "squeeze",
        "transpose",
        "unsqueeze",
    ]
)


class Shallow(NamedTuple):
    """``boxes``: the images, scaled and shifted entry by entry; ``exact``: one layer more.

    A box of images is a box there too; and one affine layer takes a box to values whose
    intervals are the best that there are.
    """

    boxes: frozenset[int]
    exact: frozenset[int]


def shallow(graph: Graph) -> Shallow:
    """Find the nodes whose interval bounds are exact for a box of images."""
    boxes: set[int] = set()
    exact: set[int] = set()
    for index, node in enumerate(graph.nodes):
        if node.kind == "input":
            boxes.add(index)
        elif len(node.inputs) == 1 and node.kind in ("layer", "function"):
            keeps, (source,) = _keeps(node), node.inputs
            if source in boxes:
                (boxes if keeps else exact if _mixes(node) else set()).add(index)
            elif source in exact and keeps:
                exact.add(index)
    return Shallow(frozenset(boxes), frozenset(boxes | exact))


def _keeps(node: Node) -> bool:
    """Tell whether each entry of a node's value is an affine function of one entry."""
    if node.kind == "function":
        return node.function in _ELEMENTWISE
    return type(node.layer) in _KEEPS or isinstance(node.layer, _BatchNorm)


def _mixes(node: Node) -> bool:
    """Tell whether each entry is an affine function, no entry before it read twice."""
    if node.kind != "layer" or type(node.layer) not in _MIXES:
        return False
    return getattr(node.layer, "padding_mode", "zeros") == "zeros"
