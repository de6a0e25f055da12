"""CROWN's bounds of the inputs of activations: backward passes, only where they matter.

A ReLU that its interval shows to be always on or always off is exact already, so only the
unstable ones are bounded; of the other activations all are. A value that one layer alone
computes from a box of images has exact interval bounds, which nothing can tighten.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.bounds import linear_rules, linear_table, patches
from advnorm.bounds.backward import Backward
from advnorm.bounds.box import Box, between
from advnorm.bounds.concretize import least
from advnorm.bounds.graph import Node
from advnorm.bounds.linear_rules import Rows
from advnorm.bounds.patches import Field, Outputs
from advnorm.bounds.relax import RELAXATIONS

BUDGET = 2**22
"""Coefficients that are taken backward together."""

_PIECEWISE = (nn.ReLU, nn.LeakyReLU, nn.PReLU)
_SAME = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)


class Part(NamedTuple):
    """Places in a value, and the least values of their entries and of the negatives."""

    place: tuple[Tensor, ...]
    least: Tensor
    least_negative: Tensor


def tighten(backward: Backward, node: Node, given: Box) -> Box:
    """Return tighter bounds of the input of an activation or of a max pooling."""
    (source,) = node.inputs
    before = backward.graph.nodes[_behind(backward, source)]
    follows = before.kind == "layer" and linear_table.is_relaxed(before.layer)
    is_exact = source in backward.shallow.exact and backward.boxes[0].ball is None
    if follows or is_exact:
        return given
    low, high = given.lower, given.upper
    bent = type(node.layer) in _PIECEWISE
    unsure = (low < 0) & (high > 0) if bent else low < high
    if not unsure.any():
        return given
    chain = _chain(backward, source)
    rows = _by_windows(backward, chain, unsure) if chain else None
    for part in rows or _by_rows(backward, source, unsure):
        low[part.place] = torch.maximum(low[part.place], part.least)
        high[part.place] = torch.minimum(high[part.place], -part.least_negative)
    # Rows that only fill a batch up must not matter: no sample's bounds depend on others.
    low = torch.where(unsure, low, given.lower)
    high = torch.where(unsure, torch.maximum(low, high), given.upper)
    return between(None, low, high)


def _by_rows(backward: Backward, source: int, unsure: Tensor) -> Iterator[Part]:
    """Bound entries by rows over whole maps, as many as the budget allows at a time."""
    flat = unsure.flatten(1)
    count = int(flat.sum(1).max())
    chosen = flat.to(torch.uint8).argsort(1, descending=True)[:, :count]
    some = max(1, BUDGET // (2 * len(flat) * backward.widest()))
    samples = torch.arange(len(flat), device=flat.device)
    for index in torch.split(chosen.T, some):
        start, rows, off = _begin(backward, source, index, unsure.shape)
        both = Rows(*(torch.cat([part, -part]) for part in rows))
        found = (part - off for part in backward.least(start, both).chunk(2))
        place = torch.unravel_index(index, unsure.shape[1:])
        yield Part((samples.expand_as(index), *place), *found)


def _begin(
    backward: Backward, source: int, index: Tensor, shape: torch.Size
) -> tuple[int, Rows, Tensor]:
    """Return rows that pick entries; those of a linear layer are its weights.

    The last tensor is what rounding may cost entries that the rows no longer start at.
    """
    zero = torch.zeros(
        index.shape, dtype=backward.boxes[0].radius.dtype, device=index.device
    )
    source = _behind(backward, source)
    node = backward.graph.nodes[source]
    if node.kind == "layer" and type(node.layer) is nn.Linear and len(shape) == 2:
        bias = zero if node.layer.bias is None else node.layer.bias[index]
        off = backward.errors.get(source)
        off = zero if off is None else off.gather(1, index.T).T
        return node.inputs[0], Rows(node.layer.weight[index], bias), off
    picks = zero.new_zeros((*index.shape, shape[1:].numel()))
    picks.scatter_(2, index.unsqueeze(2), 1)
    return source, Rows(picks.view(*index.shape, *shape[1:]), zero), zero


def _chain(backward: Backward, source: int) -> list[int] | None:
    """Return the nodes from a convolution's output back to a box, if windows suit them.

    They do where only convolutions, norms and activations lie between, and no window is
    larger than the images.
    """
    nodes, found, field = backward.graph.nodes, [], None
    index = _behind(backward, source)
    while index not in backward.shallow.boxes:
        node = nodes[index]
        if node.kind != "layer" or not _suits(node.layer, first=field is None):
            return None
        if type(node.layer) is nn.Conv2d:
            field = (field or Field((1, 1))).before(node.layer)
        found.append(index)
        index = _behind(backward, node.inputs[0])
    sides = backward.boxes[index].shape[2:]
    if field is None or any(n > side for n, side in zip(field.size, sides, strict=True)):
        return None
    return found


def _behind(backward: Backward, index: int) -> int:
    """Return the node whose value this one hands on, unchanged."""
    node = backward.graph.nodes[index]
    while node.kind == "layer" and type(node.layer) in _SAME:
        (index,) = node.inputs
        node = backward.graph.nodes[index]
    return index


def _suits(layer: nn.Module, *, first: bool) -> bool:
    if isinstance(layer, _BatchNorm) or patches.fits(layer):
        return True
    return type(layer) in RELAXATIONS and not first


def _by_windows(backward: Backward, chain: list[int], unsure: Tensor) -> Iterator[Part]:
    """Bound entries by rows over the windows that they look at."""
    some = max(1, BUDGET // (2 * _largest(backward, chain)))
    for part in torch.split(unsure.nonzero(), some):
        outputs = Outputs(*part.unbind(1))
        yield Part(
            tuple(outputs), *_least_in_windows(backward, chain, outputs, unsure.shape)
        )


def _largest(backward: Backward, chain: list[int]) -> int:
    """Return the number of coefficients of the largest window on the way."""
    field, largest = Field((1, 1)), 1
    for index in chain:
        node = backward.graph.nodes[index]
        if type(node.layer) is nn.Conv2d:
            field = field.before(node.layer)
            largest = max(largest, node.layer.in_channels * field.size[0] * field.size[1])
    return largest


def _least_in_windows(
    backward: Backward, chain: list[int], outputs: Outputs, shape: torch.Size
) -> Tensor:
    """Return the least values of outputs and of their negatives: ``(2, outputs)``."""
    field, rows = Field((shape[2], shape[3])), None
    scale = torch.ones_like(outputs.sample, dtype=backward.boxes[0].radius.dtype)
    shift = off = torch.zeros_like(scale)
    for index in chain:
        off = off + _error(backward, index, rows or scale, field, outputs)
        layer, given = backward.graph.nodes[index].layer, backward.prepared(index)
        if isinstance(layer, nn.Conv2d):
            field, source = field.before(layer), backward.graph.nodes[index].inputs[0]
            size = backward.boxes[source].shape[2:]
            if rows is None:
                rows = patches.begin(layer, outputs, scale, shift, size, field)
            else:
                rows = patches.through(layer, rows, field, size, outputs)
        elif rows is None:
            own_scale, own_shift = (values.flatten()[outputs.channel] for values in given)
            scale, shift = scale * own_scale, shift + scale * own_shift
        else:
            rows = _entrywise(layer, rows, given, field, outputs)
    assert rows is not None
    end = backward.boxes[backward.graph.nodes[chain[-1]].inputs[0]]
    return least(patches.cut_box(end, field, outputs), rows) - off


def _error(
    backward: Backward, index: int, rows: Rows | Tensor, field: Field, outputs: Outputs
) -> Tensor | float:
    """Return what rounding of a node's value may cost windows, or multiples of outputs."""
    error = backward.errors.get(index)
    if error is None:
        return 0.0
    if not isinstance(rows, Rows):
        error = error.expand(backward.boxes[index].shape)
        return rows.abs() * error[tuple(outputs)]
    if error.shape[2:].numel() == 1:
        size = rows.coefficients.abs().sum((3, 4))
        found: Tensor = (size * error.flatten(1)[outputs.sample]).sum(2)
        return found
    error = error.expand(backward.boxes[index].shape)
    return linear_rules.inner(rows.coefficients.abs(), field.cut(error, outputs))


def _entrywise(
    layer: nn.Module, rows: Rows, given: Any, field: Field, outputs: Outputs
) -> Rows:
    """Take windows through a norm or an activation."""
    if isinstance(layer, _BatchNorm):
        found = linear_rules.diagonal(rows.coefficients, *given)
    else:
        lines = patches.cut_lines(given, field, outputs)
        found = linear_rules.between(rows.coefficients, lines)
    return Rows(found.coefficients, rows.bias + found.bias)
