r"""Linear layers and convolutions.

.. math::
    W[m - r, m + r] + b \subseteq [W m + b - |W| r, \; W m + b + |W| r]

which is the smallest box. On an L2 ball the dual norm gives another one,
:math:`W c + b \pm \epsilon \|W \operatorname{diag}(s)\|_2` (row by row), and both hold. A
third bound splits the values of each row: those that the box hardly lets move (a black or
white pixel can only go one way) count by the box, and only the others by the norm.

Backward, forms go through the transpose, exactly.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import matrix_products, transposed_convolution
from advnorm.bounds import linear_forms
from advnorm.bounds.box import Ball, Box, between
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations.arguments import LayerSetting
from advnorm.bounds.operations.entry import Call, Operation, register

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
STUCK = 1e-4
"""Values that may move by no more than this part of the radius count by their room."""


def linear_interval(layer: nn.Linear, box: Box) -> Box:
    """Multiply the radius by the absolute weights."""
    return _weighted(matrix_products.linear, layer.weight, layer.bias, box)


def convolution_interval(layer: nn.Conv2d, box: Box) -> Box:
    """Convolve the radius with the absolute weights, padded as the layer pads."""
    if layer.padding_mode != "zeros":  # a pixel that is repeated has several weights
        box = Box(box.lead, box.radius)
    return _weighted(layer._conv_forward, layer.weight, layer.bias, box)


def _weighted(apply: Product, weight: Tensor, bias: Tensor | None, box: Box) -> Box:
    output = Box(apply(box.lead, weight, bias), apply(box.radius, _absolute(weight), None))
    if box.ball is None:
        return output
    centre = apply(box.ball.centre, weight, bias)
    rooms = box.ball.room(box.lower, box.upper)
    fall = _fall(apply, weight, box.ball, *rooms)
    rise = _fall(apply, weight, box.ball, *reversed(rooms))
    if box.ball.error is not None:
        error = apply(box.ball.error, _absolute(weight), None)
        fall, rise = fall + error, rise + error
    lower = torch.maximum(output.lower, centre - fall)
    upper = torch.minimum(output.upper, centre + rise)
    upper = torch.maximum(lower, upper)  # rounding must not turn them round
    return between(output.clean, lower, upper)


def _absolute(weight: Tensor) -> Tensor:
    """Return the absolute weights, laid out alike: so are centre and radius then.

    ``abs`` forgets a channels-last layout of one channel, and ReLU is slow on two layouts.
    """
    size = weight.abs()
    if weight.ndim == 4 and weight.shape[1] == weight.stride(1) == 1:
        first, _, *others = size.stride()
        size = size.as_strided(size.shape, (first, 1, *others))
    return size


def _fall(apply: Product, weight: Tensor, ball: Ball, down: Tensor, up: Tensor) -> Tensor:
    """Bound how far each output falls: a value goes down by a positive weight, else up."""
    free = apply(ball.scale.square(), weight.square(), None)
    still, moving = torch.zeros_like(free), torch.zeros_like(free)
    for part, room in ((weight.clamp(min=0), down), (weight.clamp(max=0).abs(), up)):
        stuck = room <= STUCK * ball.eps
        still = still + apply(ball.scale.abs() * room * stuck, part, None)
        moving = moving + apply(ball.scale.square() * ~stuck, part.square(), None)
    return torch.minimum(ball.eps * _norm(free), still + ball.eps * _norm(moving))


def _norm(square: Tensor) -> Tensor:
    """Return the root, which has no gradient at zero."""
    return square.clamp(min=torch.finfo(square.dtype).tiny).sqrt()


def _linear_backward(call: Call, a: Tensor, prepared: Any) -> list[LinearForms]:
    layer = call.target
    bias = linear_forms.times_bias(a, layer.bias, -1)
    return [LinearForms(matrix_products.matmul(a, layer.weight), bias)]


def convolution_backward(call: Call, a: Tensor, prepared: Any) -> list[LinearForms]:
    """Take forms through the transposed convolution.

    Its output is padded where the stride left out the last entries of the input.
    """
    layer, shape = call.target, call.box.shape
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return linear_forms.by_derivative(layer, a, shape)
    rows = a.flatten(0, 1)
    stride, padding = layer.stride, layer.padding
    if transposed_convolution.fits(stride, layer.dilation, layer.groups):
        back = transposed_convolution.transposed(
            layer.weight, stride[0], padding, rows, shape[2:]
        )
    else:
        back = _transposed(layer, rows, shape)
    bias = linear_forms.times_bias(a, layer.bias, 2)
    return [LinearForms(back.view(*a.shape[:2], *back.shape[1:]), bias)]


def _transposed(layer: nn.Conv1d | nn.Conv2d, rows: Tensor, shape: torch.Size) -> Tensor:
    assert not isinstance(layer.padding, str)
    used = (
        (out - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1
        for out, stride, pad, dilation, kernel in zip(
            rows.shape[2:],
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.kernel_size,
            strict=True,
        )
    )
    transposed = F.conv_transpose1d if isinstance(layer, nn.Conv1d) else F.conv_transpose2d
    return transposed(
        rows,
        layer.weight.contiguous(),
        None,
        layer.stride,
        layer.padding,
        tuple(size - n for size, n in zip(shape[2:], used, strict=True)),
        layer.groups,
        layer.dilation,
    )


def _bias_terms(layer: Any) -> Tensor | None:
    """Return the sizes of a bias's terms: of a norm that was folded in, they may cancel."""
    plain = None if layer.bias is None else layer.bias.abs()
    terms: Tensor | None = getattr(layer, "bias_terms", plain)
    return terms


def _size(call: Call) -> Tensor:
    """Return ``|W| |h| + |b|``."""
    layer, box, weight = call.target, call.box, call.target.weight.abs()
    if isinstance(layer, nn.Linear):
        return matrix_products.linear(box.magnitude, weight, _bias_terms(layer))
    size: Tensor = layer._conv_forward(box.magnitude, weight, _bias_terms(layer))
    return size


def _linear_rounding(call: Call, output: Box) -> Tensor:
    """Bound ``|W| |h| + |b|``; one number per sample and feature."""
    weight, bias = call.target.weight, _bias_terms(call.target)
    length = sum(
        torch.linalg.vector_norm(part, dim=-1, keepdim=True)
        for part in (call.box.centre, call.box.radius)
    )
    sizes = torch.minimum(
        _largest(call.box, -1).unsqueeze(-1) * weight.abs().sum(1),
        length * torch.linalg.vector_norm(weight, dim=1),
    )
    return sizes if bias is None else sizes + bias


def _convolution_rounding(call: Call, output: Box) -> Tensor:
    """Bound the same; one number per sample and map."""
    weight, bias = call.target.weight.flatten(1), _bias_terms(call.target)
    largest = _largest(call.box, 1)
    sizes = largest.unsqueeze(1) * weight.abs().sum(1)
    sizes = sizes if bias is None else sizes + bias
    shaped: Tensor = sizes.view(*sizes.shape, *(1,) * (len(call.box.shape) - 2))
    return shaped


def _largest(box: Box, start: int) -> Tensor:
    """Bound the largest absolute value over the dimensions from one on."""
    centre, radius = box.centre.flatten(start), box.radius.flatten(start)
    return torch.maximum(centre.amax(-1), -centre.amin(-1)) + radius.amax(-1)


def _of_weight(name: str, dim: int, groups: bool = False) -> LayerSetting:
    def fits(layer: Any) -> bool:
        times = layer.groups if groups else 1
        return bool(getattr(layer, name) == layer.weight.shape[dim] * times)

    return LayerSetting(name, fits, f"the {name} of its weights")


_SETTINGS = (
    _of_weight("out_channels", 0),
    _of_weight("in_channels", 1, groups=True),
    LayerSetting(
        "kernel_size",
        lambda layer: tuple(layer.kernel_size) == tuple(layer.weight.shape[2:]),
        "the kernel_size of its weights",
    ),
    LayerSetting(
        "padding_mode",
        lambda layer: layer.padding_mode in ("zeros", "reflect", "replicate", "circular"),
        "padding_mode zeros, reflect, replicate or circular",
    ),
)

register(
    Operation(
        layers=(nn.Linear,),
        interval=linear_interval,
        backward=_linear_backward,
        size=_size,
        rounding=_linear_rounding,
        is_product=True,
        is_mixing=True,
    )
)
_CONVOLUTION = Operation(
    layers=(nn.Conv1d, nn.Conv2d),
    settings=_SETTINGS,
    interval=convolution_interval,
    backward=convolution_backward,
    size=_size,
    rounding=_convolution_rounding,
    is_product=True,
    is_mixing=True,
)
register(_CONVOLUTION)
register(replace(_CONVOLUTION, layers=(nn.Conv3d,), backward=None, is_mixing=False))
