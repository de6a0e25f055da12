r"""Patches: backward passes of a convolution's outputs over their receptive fields alone.

An output of an early convolution depends on a small patch of each map before it. The
coefficients on that patch, ``(2, rows, maps, *patch)`` for an output and its negative, go
through the same rules as whole maps (:mod:`.linear_forms`), with the patches of each
sample's lines and images cut out, and a patch in the place of a sample. Going back through
a convolution of stride s, padding p, dilation d and kernel k, a patch of size n that begins
at o becomes one of size :math:`(n-1)s + d(k-1) + 1` that begins at
:math:`o s - p`. Entries beyond the edge of a map are set to zero.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds import linear_forms
from advnorm.bounds.box import Box
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.relax import Lines

Pair = Sequence[int]
MATRIX = 2**19
"""Entries of a matrix that is faster than many small transposed convolutions."""


class Outputs(NamedTuple):
    """Some outputs of a convolution: each one's sample, map, row and column."""

    sample: Tensor
    channel: Tensor
    top: Tensor
    left: Tensor


class ReceptiveField(NamedTuple):
    """Where the patch of output (i, j) of the last map lies in a map: static numbers."""

    last: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    size: Pair = (1, 1)

    def before(self, conv: nn.Conv2d) -> "ReceptiveField":
        """Return the field in the input of a convolution, from that in its output."""
        assert not isinstance(conv.padding, str)
        steps = zip(conv.stride, conv.padding, conv.dilation, conv.kernel_size, strict=True)
        moved = [
            (
                self.stride[i] * s,
                self.pad[i] * s + p,
                (self.size[i] - 1) * s + d * (k - 1) + 1,
            )
            for i, (s, p, d, k) in enumerate(steps)
        ]
        (sy, py, ny), (sx, px, nx) = moved
        return ReceptiveField(self.last, (sy, sx), (py, px), (ny, nx))

    def cut(self, maps: Tensor, outputs: Outputs) -> Tensor:
        """Cut each output's patch out of its sample's maps, zeros beyond the edges."""
        over = [
            max(0, (self.last[i] - 1) * self.stride[i] - self.pad[i] + self.size[i] - side)
            for i, side in enumerate(maps.shape[2:])
        ]
        padded = F.pad(maps, (self.pad[1], over[1], self.pad[0], over[0]))
        windows = padded.unfold(2, self.size[0], 1).unfold(3, self.size[1], 1)
        top, left = outputs.top * self.stride[0], outputs.left * self.stride[1]
        if len(maps) == 1:  # the same for every sample
            return windows[0, :, top, left].transpose(0, 1)
        return windows[outputs.sample, :, top, left]


def fits(conv: nn.Module) -> bool:
    """Tell whether a layer is a convolution that patches can go through."""
    plain = type(conv) is nn.Conv2d and conv.padding_mode == "zeros"
    return plain and not isinstance(conv.padding, str)


def begin(
    conv: nn.Conv2d,
    outputs: Outputs,
    scale: Tensor,
    shift: Tensor,
    size: Pair,
    field: ReceptiveField,
) -> LinearForms:
    """Return the rows of ``scale`` times outputs plus ``shift``, and of their negatives.

    ``size`` and ``field`` are of the convolution's input.
    """
    weight = _spread(conv, _ungrouped(conv))[outputs.channel] * scale.view(-1, 1, 1, 1)
    bias = shift if conv.bias is None else shift + scale * conv.bias[outputs.channel]
    a = torch.stack([weight, -weight])
    return LinearForms(_inside(a, field, size, outputs), torch.stack([bias, -bias]))


def through(
    conv: nn.Conv2d, rows: LinearForms, field: ReceptiveField, size: Pair, outputs: Outputs
) -> LinearForms:
    """Take patches through a convolution; ``field`` and ``size`` are of its input."""
    a = rows.coefficients
    grown = _transposed(conv, a.flatten(0, 1), field)
    grown = grown.view(*a.shape[:2], *grown.shape[1:])
    bias = rows.bias + linear_forms.times_bias(a, conv.bias, 2)
    return LinearForms(_inside(grown, field, size, outputs), bias)


def _transposed(conv: nn.Conv2d, a: Tensor, field: ReceptiveField) -> Tensor:
    """Convolve patches with the transposed weights, by one matrix where that is small."""
    weight = conv.weight.contiguous()

    def transposed(x: Tensor) -> Tensor:
        return F.conv_transpose2d(
            x, weight, None, conv.stride, 0, 0, conv.groups, conv.dilation
        )

    entries, (height, width) = a[0].numel(), field.size
    if entries * conv.in_channels * height * width > MATRIX or len(a) < entries:
        return transposed(a)
    each = torch.eye(entries, dtype=a.dtype, device=a.device).view(-1, *a.shape[1:])
    return (a.flatten(1) @ transposed(each).flatten(1)).view(
        -1, conv.in_channels, height, width
    )


def _ungrouped(conv: nn.Conv2d) -> Tensor:
    """Return the weights of a grouped convolution as those of one group."""
    width = conv.weight.shape[1]
    return torch.cat(
        [
            F.pad(part, (0, 0, 0, 0, i * width, (conv.groups - 1 - i) * width))
            for i, part in enumerate(conv.weight.chunk(conv.groups))
        ]
    )


def _spread(conv: nn.Conv2d, weight: Tensor) -> Tensor:
    """Return the weights of a dilated convolution with the zeros between them."""
    if max(conv.dilation) == 1:
        return weight
    steps = zip(conv.dilation, weight.shape[2:], strict=True)
    spread = weight.new_zeros((*weight.shape[:2], *(d * (k - 1) + 1 for d, k in steps)))
    spread[:, :, :: conv.dilation[0], :: conv.dilation[1]] = weight
    return spread


def _inside(a: Tensor, field: ReceptiveField, size: Pair, outputs: Outputs) -> Tensor:
    """Drop what lies beyond the edges of a map."""
    if not any(field.pad):
        return a
    ones = torch.ones((1, 1, *size), dtype=a.dtype, device=a.device)
    return a * field.cut(ones, outputs)


def cut_lines(lines: Lines, field: ReceptiveField, outputs: Outputs) -> Lines:
    """Cut the patches of an activation's lines."""
    return Lines(*(field.cut(line, outputs) if line.ndim else line for line in lines))


def cut_box(box: Box, field: ReceptiveField, outputs: Outputs) -> Box:
    """Cut the patches of a box, and of the ball in it."""
    ball = box.ball and box.ball.moved(lambda maps: field.cut(maps, outputs))
    return Box(field.cut(box.centre, outputs), field.cut(box.radius, outputs), ball)
