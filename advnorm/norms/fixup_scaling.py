r"""Scale residual branches for training without norms: Fixup (Zhang et al., 2019).

Without norms, each of L residual branches adds to the variance of the features, which then
grow like :math:`2^L` and cannot be trained. Fixup starts each branch at zero:

1. the last layer of each branch is set to zero;
2. the other layers of a branch are multiplied by :math:`L^{-1/(2m-2)}`, for m layers;
3. a layer before a removed norm, which had its bias from the norm, gets a bias of zero.

Branches are those of the traced graph: of the two inputs of an addition, the one with more
convolutions and linear layers after the last point that both share.
"""

import operator
from typing import NamedTuple

import torch
from torch import fx, nn

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")


class ResidualBranch(NamedTuple):
    """The layers with weights in a residual branch, and the last of them."""

    layers: list[nn.Module]
    last: list[nn.Module]


def scale_branches(model: nn.Module) -> None:
    """Apply the rules above to a model without norms, in place.

    A model whose forward cannot be traced, or that has no residual branch, is refused.
    """
    graph = _trace(model)
    branches = residual_branches(model, graph)
    if not branches:
        raise ValueError(
            "fixup scales residual branches, and the model adds none to a shortcut: leave "
            "out fixup"
        )
    scaled: set[nn.Module] = set()
    with torch.no_grad():
        for branch in branches:
            factor = len(branches) ** (-1 / (2 * max(len(branch.layers), 2) - 2))
            for layer in branch.layers:
                if layer not in scaled:
                    scaled.add(layer)
                    assert isinstance(layer.weight, torch.Tensor)
                    layer.weight.mul_(0.0 if layer in branch.last else factor)
                    if layer in branch.last and isinstance(layer.bias, torch.Tensor):
                        layer.bias.zero_()
    _add_biases(model, graph)


def residual_branches(model: nn.Module, graph: fx.Graph) -> list[ResidualBranch]:
    """Return the residual branches of a traced model, from the input on."""
    layers = dict(model.named_modules())
    weighted = {
        node
        for node in graph.nodes
        if node.op == "call_module" and isinstance(layers[str(node.target)], _WEIGHTED)
    }
    ancestors: dict[fx.Node, set[fx.Node]] = {}
    branches = []
    for node in graph.nodes:
        above = [ancestors[parent] for parent in node.all_input_nodes]
        ancestors[node] = {node}.union(*above)
        if node.target in _SUMS and len(node.all_input_nodes) == 2:
            branch = _longer(node, ancestors, weighted)
            if branch is not None:
                last = _last(*branch, weighted)
                inside = [n for n in graph.nodes if n in branch[1] & weighted]
                branches.append(
                    ResidualBranch(
                        [layers[str(n.target)] for n in inside],
                        [layers[str(n.target)] for n in last],
                    )
                )
    return branches


def _longer(
    node: fx.Node, ancestors: dict[fx.Node, set[fx.Node]], weighted: set[fx.Node]
) -> tuple[fx.Node, set[fx.Node]] | None:
    """Return the end and the nodes of the branch of an addition, if it has one."""
    first, second = node.all_input_nodes
    sides = [
        (first, ancestors[first] - ancestors[second]),
        (second, ancestors[second] - ancestors[first]),
    ]
    short, long = sorted(sides, key=lambda side: len(side[1] & weighted))
    share_input = bool(ancestors[first] & ancestors[second])
    more = len(long[1] & weighted) > len(short[1] & weighted)
    return long if more and share_input else None


def _last(end: fx.Node, nodes: set[fx.Node], weighted: set[fx.Node]) -> set[fx.Node]:
    """Return the weighted layers that reach the end of a branch through no other."""
    waiting, last = [end], set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node in weighted:
            last.add(node)
        else:
            waiting.extend(parent for parent in node.all_input_nodes if parent in nodes)
    return last


def _add_biases(model: nn.Module, graph: fx.Graph) -> None:
    """Give the weighted layers before removed norms a bias of zero."""
    layers = dict(model.named_modules())
    for node in graph.nodes:
        if node.op == "call_module" and type(layers[str(node.target)]) is nn.Identity:
            (source, *_) = node.all_input_nodes
            layer = layers.get(str(source.target)) if source.op == "call_module" else None
            if isinstance(layer, _WEIGHTED) and layer.bias is None:
                zeros = layer.weight.new_zeros(len(layer.weight))
                layer.bias = nn.Parameter(zeros)


def _trace(model: nn.Module) -> fx.Graph:
    try:
        return fx.Tracer().trace(model)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            "fixup finds residual branches in the traced graph, and the model cannot be "
            f"traced ({reason}): leave out fixup, and scale them yourself"
        ) from error
