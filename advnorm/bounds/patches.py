r"""Patches: backward passes of some entries of a map over their receptive fields alone.

An entry of an early map depends on a small patch of each map before it. The coefficients
on that patch, ``(2, entries, maps, *patch)`` for an entry and its negative, go through the
same rules as whole maps (:mod:`.linear_forms`), with the patches of each sample's lines and
images cut out (:mod:`.receptive_field`). Coefficients beyond the edge of a map are zero.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import matrix_products
from advnorm.bounds import linear_forms
from advnorm.bounds.box import Box
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations.pooling import PoolBounds
from advnorm.bounds.receptive_field import Outputs, Pair, ReceptiveField, Window
from advnorm.bounds.relax import Lines

MATRIX = 2**17
"""Entries of a matrix that is faster than many small transposed convolutions."""


class Kernel(NamedTuple):
    """The weights of a convolution, or of an average pooling, and its window."""

    weight: Tensor
    bias: Tensor | None
    window: Window
    groups: int

    @property
    def in_channels(self) -> int:
        """The number of maps that it reads."""
        return self.weight.shape[1] * self.groups


def window_of(layer: object) -> Window | None:
    """Return the window of a convolution or pooling that patches can go through."""
    if type(layer) is nn.Conv2d:
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            return None
        return Window(
            layer.kernel_size, tuple(layer.stride), tuple(layer.padding), layer.dilation
        )
    if not isinstance(layer, nn.AvgPool2d | nn.MaxPool2d) or layer.ceil_mode:
        return None
    if type(layer) is nn.MaxPool2d:
        settings = layer.kernel_size, layer.stride, layer.padding, layer.dilation
        return Window(*map(_pair, settings))
    assert isinstance(layer, nn.AvgPool2d)
    plain = layer.divisor_override is None and layer.count_include_pad
    settings = layer.kernel_size, layer.stride, layer.padding, 1
    return Window(*map(_pair, settings)) if plain else None


def kernel_of(layer: nn.Module, window: Window, like: Tensor, channels: int) -> Kernel:
    """Return the weights of a convolution; those of an average pooling are all alike."""
    if isinstance(layer, nn.Conv2d):
        return Kernel(layer.weight, layer.bias, window, layer.groups)
    height, width = window.kernel
    weight = like.new_full((channels, 1, height, width), 1 / (height * width))
    return Kernel(weight, None, window, channels)


def through(
    kernel: Kernel, rows: LinearForms, field: ReceptiveField, size: Pair, outputs: Outputs
) -> LinearForms:
    """Take patches through a convolution; ``field`` and ``size`` are of its input."""
    a = rows.coefficients
    grown = _transposed(kernel, a.flatten(0, 1), field)
    grown = grown.view(*a.shape[:2], *grown.shape[1:])
    bias = rows.bias + linear_forms.times_bias(a, kernel.bias, 2)
    return LinearForms(field.inside(grown, size, outputs), bias)


def _transposed(kernel: Kernel, a: Tensor, field: ReceptiveField) -> Tensor:
    """Convolve patches with the transposed weights, by one matrix where that is small."""
    weight, window = kernel.weight.contiguous(), kernel.window

    def transposed(x: Tensor) -> Tensor:
        return F.conv_transpose2d(
            x, weight, None, window.stride, 0, 0, kernel.groups, window.dilation
        )

    entries, (height, width) = a[0].numel(), field.size
    if entries * kernel.in_channels * height * width > MATRIX or len(a) < entries:
        return transposed(a)
    each = torch.eye(entries, dtype=a.dtype, device=a.device).view(-1, *a.shape[1:])
    grown = matrix_products.matmul(a.flatten(1), transposed(each).flatten(1))
    return grown.view(-1, kernel.in_channels, height, width)


def through_max(
    window: Window,
    bounds: PoolBounds,
    rows: LinearForms,
    field: ReceptiveField,
    size: Pair,
    outputs: Outputs,
) -> LinearForms:
    """Take patches through a max pooling: to the picked entries, or to the ceiling.

    ``field`` is of its output, ``size`` of its input. The picked entry of a window is
    known by its place in the window, which is the same in a patch.
    """
    a, (rows_in, columns_in) = rows.coefficients, field.before(window).size
    sure = field.cut(bounds.sure.to(a.dtype), outputs) > 0
    picked = torch.where(sure, a, a.clamp(min=0))
    bias = rows.bias + linear_forms.inner(a - picked, field.cut(bounds.ceiling, outputs))
    place = field.cut(_places(bounds.picked, window, size).to(a.dtype), outputs)
    grown = a.new_zeros((*a.shape[:3], rows_in, columns_in))
    for number in range(window.kernel[0] * window.kernel[1]):
        top, left = divmod(number, window.kernel[1])
        rows_of, columns_of = (
            slice(start * d, start * d + (n - 1) * s + 1, s)
            for start, d, n, s in zip(
                (top, left), window.dilation, field.size, window.stride, strict=True
            )
        )
        part = grown[..., rows_of, columns_of]
        grown[..., rows_of, columns_of] = part + picked * (place == number)
    return LinearForms(grown, bias)


def _places(picked: Tensor, window: Window, size: Pair) -> Tensor:
    """Return the number of each picked entry in its window."""
    out, width = picked.shape[2:], size[1]
    places = torch.zeros_like(picked)
    index = (picked // width, picked % width)
    for i, n in enumerate(out):
        start = torch.arange(n, device=picked.device) * window.stride[i] - window.padding[i]
        own = index[i] - (start.view(-1, 1) if i == 0 else start)
        own = own.div(window.dilation[i], rounding_mode="floor")
        places = places * window.kernel[i] + own
    return places


def entrywise(
    rows: LinearForms, prepared: Any, field: ReceptiveField, outputs: Outputs
) -> LinearForms:
    """Take patches through a norm or an activation."""
    if isinstance(prepared, Lines):
        lines = cut_lines(prepared, field, outputs)
        forms = linear_forms.through_lines(rows.coefficients, lines)
    else:
        forms = linear_forms.through_channels(rows.coefficients, *prepared)
    return LinearForms(forms.coefficients, rows.bias + forms.bias)


def cut_lines(lines: Lines, field: ReceptiveField, outputs: Outputs) -> Lines:
    """Cut the patches of an activation's lines."""
    return Lines(*(field.cut(line, outputs) if line.ndim else line for line in lines))


def cut_box(box: Box, field: ReceptiveField, outputs: Outputs) -> Box:
    """Cut the patches of a box, and of the ball in it."""
    ball = box.ball and box.ball.moved(lambda maps: field.cut(maps, outputs))
    return Box(field.cut(box.centre, outputs), field.cut(box.radius, outputs), ball)


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else tuple(value)
