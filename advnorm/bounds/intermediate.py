"""CROWN's bounds of the inputs of activations: backward passes, only where they matter.

A ReLU that its interval shows to be always on or always off is exact already, so only the
unstable ones are bounded; of the other activations all are. A value that one layer alone
computes from a box of images has exact interval bounds, which nothing can tighten.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from advnorm.bounds import linear_forms, patches
from advnorm.bounds.backward import Backward
from advnorm.bounds.box import Box, between
from advnorm.bounds.concretize import concretize
from advnorm.bounds.graph import Node
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.patches import Outputs, ReceptiveField
from advnorm.bounds.relax import Lines

BUDGET = 2**22
"""Coefficients that are taken backward together."""


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
    chain = _chain(backward, source)
    rows = _by_patches(backward, chain, unsure) if chain else None
    for part in rows or _by_rows(backward, source, unsure):
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
    some = max(1, BUDGET // (2 * len(flat) * backward.widest()))
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


def _chain(backward: Backward, source: int) -> list[int] | None:
    """Return the nodes from a convolution's output back to a box, if patches suit them.

    They do where only convolutions, norms and activations lie between, and no patch is
    larger than the images.
    """
    nodes, chain, field = backward.graph.nodes, [], None
    index = _skip_identities(backward, source)
    while index not in backward.exact_nodes.boxes:
        node = nodes[index]
        if not _suits(node, first=field is None):
            return None
        if type(node.layer) is nn.Conv2d:
            field = (field or ReceptiveField((1, 1))).before(node.layer)
        chain.append(index)
        index = _skip_identities(backward, node.inputs[0])
    sides = backward.boxes[index].shape[2:]
    if field is None or any(n > side for n, side in zip(field.size, sides, strict=True)):
        return None
    return chain


def _skip_identities(backward: Backward, index: int) -> int:
    """Return the node whose value reaches this one unchanged."""
    node = backward.graph.nodes[index]
    while node.operation.identity:
        (index,) = node.inputs
        node = backward.graph.nodes[index]
    return index


def _suits(node: Node, *, first: bool) -> bool:
    if node.operation.channel_affine is not None or patches.fits(node.target):
        return True
    return node.operation.relaxation is not None and not first


def _by_patches(
    backward: Backward, chain: list[int], unsure: Tensor
) -> Iterator[EntryBounds]:
    """Bound entries by forms over their receptive fields alone."""
    some = max(1, BUDGET // (2 * _largest(backward, chain)))
    for part in torch.split(unsure.nonzero(), some):
        outputs = Outputs(*part.unbind(1))
        yield EntryBounds(
            tuple(outputs), *_bound_patches(backward, chain, outputs, unsure.shape)
        )


def _largest(backward: Backward, chain: list[int]) -> int:
    """Return the number of coefficients of the largest patch on the way."""
    field, largest = ReceptiveField((1, 1)), 1
    for index in chain:
        node = backward.graph.nodes[index]
        if type(node.layer) is nn.Conv2d:
            field = field.before(node.layer)
            largest = max(largest, node.layer.in_channels * field.size[0] * field.size[1])
    return largest


def _bound_patches(
    backward: Backward, chain: list[int], outputs: Outputs, shape: torch.Size
) -> Tensor:
    """Return lower bounds of outputs and of their negatives: ``(2, outputs)``."""
    field, rows = ReceptiveField((shape[2], shape[3])), None
    scale = torch.ones_like(outputs.sample, dtype=backward.boxes[0].radius.dtype)
    shift = off = torch.zeros_like(scale)
    for index in chain:
        off = off + _error(backward, index, rows or scale, field, outputs)
        layer, prepared = backward.graph.nodes[index].layer, backward.prepared(index)
        if isinstance(layer, nn.Conv2d):
            field, source = field.before(layer), backward.graph.nodes[index].inputs[0]
            size = backward.boxes[source].shape[2:]
            if rows is None:
                rows = patches.begin(layer, outputs, scale, shift, size, field)
            else:
                rows = patches.through(layer, rows, field, size, outputs)
        elif rows is None:
            own_scale, own_shift = (
                values.flatten()[outputs.channel] for values in prepared
            )
            scale, shift = scale * own_scale, shift + scale * own_shift
        else:
            rows = _entrywise(rows, prepared, field, outputs)
    assert rows is not None
    end = backward.boxes[backward.graph.nodes[chain[-1]].inputs[0]]
    return concretize(patches.cut_box(end, field, outputs), rows) - off


def _error(
    backward: Backward,
    index: int,
    rows: LinearForms | Tensor,
    field: ReceptiveField,
    outputs: Outputs,
) -> Tensor | float:
    """Return what rounding of a node's value may cost patches, or multiples of outputs."""
    error = backward.errors.get(index)
    if error is None:
        return 0.0
    if not isinstance(rows, LinearForms):
        error = error.expand(backward.boxes[index].shape)
        return rows.abs() * error[tuple(outputs)]
    if error.shape[2:].numel() == 1:
        size = rows.coefficients.abs().sum((3, 4))
        cost: Tensor = (size * error.flatten(1)[outputs.sample]).sum(2)
        return cost
    error = error.expand(backward.boxes[index].shape)
    return linear_forms.inner(rows.coefficients.abs(), field.cut(error, outputs))


def _entrywise(
    rows: LinearForms, prepared: Any, field: ReceptiveField, outputs: Outputs
) -> LinearForms:
    """Take patches through a norm or an activation."""
    if isinstance(prepared, Lines):
        lines = patches.cut_lines(prepared, field, outputs)
        forms = linear_forms.through_lines(rows.coefficients, lines)
    else:
        forms = linear_forms.through_channels(rows.coefficients, *prepared)
    return LinearForms(forms.coefficients, rows.bias + forms.bias)
