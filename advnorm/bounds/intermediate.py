"""CROWN's bounds of the inputs of activations: backward passes, only where they matter.

A ReLU that its interval shows to be always on or always off is exact already, so only the
unstable ones are bounded; of the other activations all are. A value that one layer alone
computes from a box of images has exact interval bounds, which nothing can tighten.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.bounds.backward import Backward
from advnorm.bounds.box import Box, between
from advnorm.bounds.budget import fitting
from advnorm.bounds.entry_bounds import bound_entries
from advnorm.bounds.graph import Graph, Node
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.patch_plan import plan_patches
from advnorm.bounds.receptive_field import Outputs


class EntryBounds(NamedTuple):
    """Places in a value, and lower bounds of their entries and of the negatives."""

    place: tuple[Tensor, ...]
    lower: Tensor
    lower_negative: Tensor


def tighten(backward: Backward, node: Node, box: Box) -> Box:
    """Return tighter bounds of the input of an activation or of a max pooling."""
    (source,) = node.inputs
    before = backward.graph.nodes[_skip_identities(backward, source)]
    is_exact = source in backward.exact_nodes.exact and backward.boxes[0].ball is None
    if before.operation.needs_bounds or is_exact:
        return box
    low, high = box.lower, box.upper
    unsure = (low < 0) & (high > 0) if node.operation.bends_at_zero else low < high
    if not unsure.any():
        return box
    is_map = len(box.shape) == 4
    rows = (_by_entries if is_map else _by_rows)(backward, source, unsure)
    for part in rows:
        low[part.place] = torch.maximum(low[part.place], part.lower)
        high[part.place] = torch.minimum(high[part.place], -part.lower_negative)
    # Rows that only fill a batch up must not matter: no sample's bounds depend on others.
    low = torch.where(unsure, low, box.lower)
    high = torch.where(unsure, torch.maximum(low, high), box.upper)
    return between(None, low, high)


def _by_rows(backward: Backward, source: int, unsure: Tensor) -> Iterator[EntryBounds]:
    """Bound entries by forms over whole maps, as many at a time as the budget allows."""
    flat = unsure.flatten(1)
    count = int(flat.sum(1).max())
    chosen = flat.to(torch.uint8).argsort(1, descending=True)[:, :count]
    some = fitting(2 * len(flat) * backward.widest(), backward.boxes[0].radius)
    samples = torch.arange(len(flat), device=flat.device)
    for index in torch.split(chosen.T, some):
        start, rows, off = _begin(backward, source, index, unsure.shape)
        both = LinearForms(*(torch.cat([part, -part]) for part in rows))
        lower = (part - off for part in backward.lower_bounds(start, both).chunk(2))
        place = torch.unravel_index(index, unsure.shape[1:])
        yield EntryBounds((samples.expand_as(index), *place), *lower)


def _begin(
    backward: Backward, source: int, index: Tensor, shape: torch.Size
) -> tuple[int, LinearForms, Tensor]:
    """Return rows that pick entries; those of a linear layer are its weights.

    The last tensor is what rounding may cost entries that the rows no longer start at.
    """
    zero = torch.zeros(
        index.shape, dtype=backward.boxes[0].radius.dtype, device=index.device
    )
    source = _skip_identities(backward, source)
    node = backward.graph.nodes[source]
    if node.kind == "layer" and type(node.layer) is nn.Linear and len(shape) == 2:
        bias = zero if node.layer.bias is None else node.layer.bias[index]
        off = backward.errors.get(source)
        off = zero if off is None else off.gather(1, index.T).T
        return node.inputs[0], LinearForms(node.layer.weight[index], bias), off
    picks = zero.new_zeros((*index.shape, shape[1:].numel()))
    picks.scatter_(2, index.unsqueeze(2), 1)
    return source, LinearForms(picks.view(*index.shape, *shape[1:]), zero), zero


def _skip_identities(backward: Backward, index: int) -> int:
    """Return the node whose value reaches this one unchanged."""
    node = backward.graph.nodes[index]
    while node.operation.identity:
        (index,) = node.inputs
        node = backward.graph.nodes[index]
    return index


def _by_entries(backward: Backward, source: int, unsure: Tensor) -> Iterator[EntryBounds]:
    """Bound entries of a map by patches as far as these go; then by maps of one sample."""
    source, drop = _skip_identities(backward, source), _may_drop(backward.graph)
    plan, entries = plan_patches(backward, source), unsure.nonzero()
    some = fitting(2 * plan.largest, backward.boxes[0].radius)
    if not plan.is_whole:
        for part in torch.split(entries, some):
            outputs = Outputs(*part.unbind(1))
            lower = bound_entries(backward, plan, source, outputs, drop=drop)
            yield EntryBounds(tuple(outputs), *lower)
        return
    for sample in sorted(set(entries[:, 0].tolist())):
        own = backward.of_sample(sample)
        for part in torch.split(entries[entries[:, 0] == sample], some):
            outputs = Outputs(*part.unbind(1))
            alone = outputs._replace(sample=torch.zeros_like(outputs.sample))
            lower = bound_entries(own, plan, source, alone, drop=drop)
            yield EntryBounds(tuple(outputs), *lower)


def _may_drop(graph: Graph) -> bool:
    """Tell whether the sign of an entry is all that matters once it is sure.

    It is where all bends are at zero: max pooling, say, looks at the bounds themselves.
    """
    return all(
        node.operation.backward is not None
        and (node.operation.bends_at_zero or not node.operation.needs_bounds)
        for node in graph.nodes
        if node.kind in ("layer", "function")
    )
