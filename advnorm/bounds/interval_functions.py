"""Interval rules of functions: sums, multiples, and those that move values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from advnorm.bounds.box import Box
from advnorm.bounds.graph import Node
from advnorm.bounds.interval import function_rule
from advnorm.bounds.interval_linear import scaled
from advnorm.bounds.layer_checks import is_plain
from advnorm.bounds.operations import POSITIVE

_KEEPS_BALL = POSITIVE - {"getitem", "mean", "pad", "sum"}


@function_rule("add")
def add(one: Any, other: Any, *, alpha: float = 1) -> Box:
    """Add centres and add radii."""
    if not isinstance(one, Box):
        return scaled(other, alpha, _known(one, other))
    if not isinstance(other, Box):
        return scaled(one, 1, _known(alpha * other, one))
    return Box(one.lead + alpha * other.lead, one.radius + abs(alpha) * other.radius)


@function_rule("sub")
def sub(one: Any, other: Any, *, alpha: float = 1) -> Box:
    """Subtract centres and add radii."""
    return add(one, other, alpha=-alpha)


@function_rule("neg")
def neg(box: Box) -> Box:
    """Turn the box round."""
    return scaled(box, -1, 0)


@function_rule("mul")
def mul(one: Any, other: Any) -> Box:
    """Multiply by a constant."""
    if isinstance(one, Box) and isinstance(other, Box):
        raise NotImplementedError(
            "no certificate for a product of two values that depend on the input: multiply "
            "by constants"
        )
    box, factor = (one, other) if isinstance(one, Box) else (other, one)
    return scaled(box, _known(factor, box), 0)


@function_rule("div")
def div(box: Any, divisor: Any, *, rounding_mode: None = None) -> Box:
    """Divide by a constant."""
    if isinstance(divisor, Box):
        raise NotImplementedError(
            "no certificate for a division by a value that depends on the input"
        )
    divisor = _known(divisor, box)
    if isinstance(divisor, Tensor):  # else its inverse is rounded to its own type
        divisor = divisor.to(torch.result_type(box.radius, divisor))
    return scaled(box, 1 / divisor, 0)


@function_rule("cat")
def cat(tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> Box:
    """Put the boxes side by side."""
    dim = dim if axis is None else axis
    are_boxes = all(isinstance(box, Box) for box in tensors)
    if not are_boxes or dim % len(tensors[0].shape) == 0:
        raise NotImplementedError(
            "no certificate for a concatenation of samples, or with constants: concatenate "
            "features that depend on the input"
        )
    lead = torch.cat([box.lead for box in tensors], dim)
    return Box(lead, torch.cat([box.radius for box in tensors], dim))


@function_rule("positive")
def positive(node: Node, box: Box, *args: Any, **kwargs: Any) -> Box:
    """Apply to the centre and the linear part to the radius: no coefficient is negative."""

    def apply(x: Tensor) -> Tensor:
        found: Tensor = node.target(x, *args, **kwargs)
        return found

    radius = apply(box.radius)
    if not radius.ndim:
        raise NotImplementedError("it mixes the samples of a batch")
    if node.function == "pad":
        radius = radius - apply(torch.zeros_like(box.radius))
    # one part at a time: an argument may be the number of rows
    lead = torch.cat([apply(part) for part in box.parts])
    if lead.is_contiguous():  # a single channel would pass for the channels-last layout
        lead = lead.reshape(-1).view(lead.shape)
    if box.ball is None or node.function not in _KEEPS_BALL:
        return Box(lead, radius)
    full = box.ball.stretched(1, torch.zeros_like(box.radius))
    full = replace(full, scale=full.scale.expand_as(full.centre))
    return Box(lead, radius, full.moved(apply))


def _known(value: Any, box: Box) -> Any:
    """Return a constant that broadcasts against the rows of a box, clean ones too."""
    if not isinstance(value, Tensor):
        return value
    if not is_plain(value):
        raise NotImplementedError(
            f"a constant is a {type(value).__name__}: certificates are of plain tensors"
        )
    if value.ndim > len(box.shape):
        raise NotImplementedError("a constant has more dimensions than what it is added to")
    if value.ndim == len(box.shape) and len(value) != 1:
        raise NotImplementedError(
            f"a constant has {len(value)} rows, one a sample: what holds for an image must "
            "not depend on its place in the batch"
        )
    return value.to(box.radius.dtype) if value.dtype == torch.bool else value
