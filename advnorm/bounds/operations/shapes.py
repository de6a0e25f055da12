"""Layers and functions that move, select, pad, sum or average values, and identities.

All are affine in their tensor with coefficients that are never negative, so that they are
applied to the centre, and their linear part to the radius.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.bounds import linear_forms
from advnorm.bounds.box import Box
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations.arguments import (
    AXIS,
    DIM,
    INPLACE,
    Argument,
    among,
    boolean,
    equals,
    integers,
    is_index,
    is_number,
    number,
    or_none,
)
from advnorm.bounds.operations.entry import Call, Operation, register
from advnorm.bounds.operations.pooling import apply_to_both, layer_backward, layer_size


def is_dropping(layer: nn.Module) -> bool:
    """Tell whether a layer drops values at random now."""
    return layer.training and bool(getattr(layer, "p", False))


def _identity_interval(layer: nn.Identity, box: Box) -> Box:
    return box


def _dropout_interval(layer: nn.Module, box: Box) -> Box:
    """Return the box in evaluation; in training drop the same values of every bound."""
    if not is_dropping(layer):
        return box
    if box.clean is None:
        raise ValueError("it drops values at random now: call model.eval() before")
    kept = layer(torch.ones_like(box.radius))
    return Box(box.lead * torch.cat([kept, kept]), box.radius * kept)


def _identity_backward(call: Call, a: Tensor, prepared: Any) -> list[LinearForms]:
    if is_dropping(call.target):
        raise NotImplementedError(
            "it drops values at random now, and linear bounds do not know which: leave it "
            "out, or train with interval bounds alone"
        )
    return [LinearForms(a, a.new_zeros(a.shape[:2]))]


def _reshape_interval(layer: nn.Flatten | nn.Unflatten, box: Box) -> Box:
    """Move the values of each sample."""
    first = layer.start_dim if isinstance(layer, nn.Flatten) else layer.dim
    if first == 0:
        raise NotImplementedError("it mixes the samples of a batch")
    ball = box.ball and box.ball.moved(layer)
    return Box(layer(box.lead), layer(box.radius), ball)


def _reshape_backward(call: Call, a: Tensor, prepared: Any) -> list[LinearForms]:
    return [LinearForms(a.reshape(len(a), *call.box.shape), a.new_zeros(a.shape[:2]))]


def _layer(*layers: type[nn.Module], **entry: Any) -> Operation:
    return Operation(layers=layers, size=layer_size, is_view=True, **entry)


_IDENTITY = {"backward": _identity_backward, "identity": True, "is_entrywise": True}
_RESHAPE = {
    "interval": _reshape_interval,
    "backward": _reshape_backward,
    "is_entrywise": True,
}
register(_layer(nn.Identity, interval=_identity_interval, **_IDENTITY))
register(
    _layer(
        *(nn.Dropout, nn.Dropout1d, nn.Dropout2d),
        functions=("dropout",),
        arguments=(number("p"), boolean("training"), INPLACE),
        interval=_dropout_interval,
        **_IDENTITY,
    )
)
register(_layer(nn.Flatten, flattens=True, **_RESHAPE))
register(_layer(nn.Unflatten, **_RESHAPE))

_PADDING = Operation(
    layers=(nn.ReflectionPad2d, nn.ReplicationPad2d),
    interval=apply_to_both,
    backward=layer_backward,
    size=layer_size,
)
register(_PADDING)
register(replace(_PADDING, layers=(nn.ZeroPad2d,), settings=(equals("value", 0),)))


def _applied(function: Any, box: Box, *args: Any, **kwargs: Any) -> Box:
    """Apply a linear function without negative coefficients to centre and radius."""
    radius = function(box.radius, *args, **kwargs)
    if not radius.ndim:
        raise NotImplementedError("it mixes the samples of a batch")
    # one part at a time: an argument may be the number of rows
    lead = torch.cat([function(part, *args, **kwargs) for part in box.parts])
    if lead.is_contiguous():  # a single channel would pass for the channels-last layout
        lead = lead.reshape(-1).view(lead.shape)
    return Box(lead, radius)


def _moved(function: Any, box: Box, *args: Any, **kwargs: Any) -> Box:
    """Move every value to one place; so does the ball."""
    output = _applied(function, box, *args, **kwargs)
    if box.ball is None:
        return output
    ball = box.ball.stretched(1, torch.zeros_like(box.radius))
    ball = replace(ball, scale=ball.scale.expand_as(ball.centre))
    return replace(output, ball=ball.moved(lambda x: function(x, *args, **kwargs)))


def _padded(function: Any, box: Box, *args: Any, **kwargs: Any) -> Box:
    """Pad, with a number that is known exactly."""
    output = _applied(function, box, *args, **kwargs)
    constant = function(torch.zeros_like(box.radius), *args, **kwargs)
    return Box(output.lead, output.radius - constant)


def function_backward(call: Call, a: Tensor, prepared: Any) -> list[LinearForms]:
    """Take forms through a function that is affine in its inputs together."""

    def function(*inputs: Tensor) -> Tensor:
        tensors = iter([tensor + 0 for tensor in inputs])  # it may overwrite them
        args, kwargs = _with_tensors((call.args, dict(call.kwargs)), tensors)
        output: Tensor = call.target(*args, **kwargs)
        return output

    return linear_forms.by_derivative(function, a, *(box.shape for box in call.boxes))


def _with_tensors(value: Any, tensors: Any) -> Any:
    """Put tensors in the place of boxes, in order."""
    if isinstance(value, Box):
        return next(tensors)
    if isinstance(value, tuple | list):
        return type(value)([_with_tensors(item, tensors) for item in value])
    if isinstance(value, dict):
        return {key: _with_tensors(item, tensors) for key, item in value.items()}
    return value


def _function_size(call: Call) -> Tensor:
    _, *args = call.args
    size: Tensor = call.target(call.box.size, *args, **call.kwargs)
    return size.abs()


def _sum_rounding(call: Call, output: Box) -> Tensor:
    return _function_size(call)


def _function(*functions: str, arguments: tuple[Argument, ...], **entry: Any) -> None:
    register(
        Operation(
            functions=functions,
            arguments=arguments,
            backward=function_backward,
            size=_function_size,
            **entry,
        )
    )


_move = partial(_function, interval=_moved, is_view=True, is_entrywise=True)
_LAYOUTS = (torch.contiguous_format, torch.channels_last, torch.preserve_format)
_move(
    "contiguous",
    arguments=(Argument("memory_format", among(*_LAYOUTS), "a layout", by_name=True),),
)
_move("flatten", arguments=(integers("start_dim"), integers("end_dim")))
_move("movedim", "moveaxis", arguments=(integers("source"), integers("destination")))
_move("permute", arguments=(integers("dims"),), spreads=True)
_move("reshape", "view", arguments=(integers("shape"),), spreads=True)
_move("squeeze", arguments=(DIM,))
_move("transpose", arguments=(integers("dim0"), integers("dim1")))
_move("unsqueeze", arguments=(integers("dim"),))
_function(
    "getitem",
    arguments=(Argument("index", is_index, "numbers, slices and constants"),),
    interval=_applied,
    is_view=True,
)
_MODES = ("constant", "reflect", "replicate", "circular")
_function(
    "pad",
    arguments=(
        integers("pad"),
        Argument("mode", among(*_MODES), " or ".join(_MODES)),
        Argument("value", or_none(is_number), "None or a number"),
    ),
    interval=_padded,
)
for _name in ("sum", "mean"):
    _function(
        _name,
        arguments=(
            DIM,
            boolean("keepdim"),
            AXIS,
            Argument("dtype", among(None), "None", by_name=True),
        ),
        interval=_applied,
        rounding=_sum_rounding,
    )
