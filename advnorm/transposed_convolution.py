r"""Transposed convolutions with a stride, as plain convolutions: much faster on a CPU.

With :math:`i + p = s q + \rho`, the entry i of a transposed convolution of stride s and
padding p is

.. math:: y_i = \sum_u w_{\rho + s u}\, a_{q - u},

for each remainder :math:`\rho` a convolution of stride 1. They are computed together, as
so many channels, and their outputs are interleaved.
"""

from collections.abc import Sequence
from itertools import product

from torch import Tensor
from torch.nn import functional as F

Pair = tuple[int, ...]


def fits(stride: Pair, dilation: Pair, groups: int) -> bool:
    """Tell whether a convolution has one stride over 1, no dilation and no groups."""
    one_stride = stride[0] == stride[-1] > 1
    return len(stride) == 2 and one_stride and set(dilation) == {1} and groups == 1


def transposed(
    weight: Tensor, stride: int, padding: Pair, a: Tensor, size: Sequence[int]
) -> Tensor:
    """Take ``(rows, *output)`` through the transpose; ``size`` is that of the input."""
    height, width = weight.shape[2:]
    more = -height % stride, -width % stride
    weight = F.pad(weight, (0, more[1], 0, more[0]))
    taps = (height + more[0]) // stride, (width + more[1]) // stride
    weight = weight.reshape(*weight.shape[:2], taps[0], stride, taps[1], stride)
    weight = weight.permute(1, 3, 5, 0, 2, 4).flatten(0, 2).flip(2, 3)
    phases = F.conv2d(a, weight, padding=(taps[0] - 1, taps[1] - 1))
    if phases.requires_grad:
        return _shuffled(phases, stride, padding, size)
    return _interleaved(phases, stride, padding, size)


def _shuffled(phases: Tensor, stride: int, padding: Pair, size: Sequence[int]) -> Tensor:
    """Interleave, then cut off the padding and add what no window reaches."""
    back = F.pixel_shuffle(phases, stride)
    top, left = padding
    over = [top + size[0] - back.shape[2], left + size[1] - back.shape[3]]
    return F.pad(back, (-left, over[1], -top, over[0]))


def _interleaved(phases: Tensor, stride: int, padding: Pair, size: Sequence[int]) -> Tensor:
    """Do the same in half of the time: each phase is written to its places at once."""
    rows, channels, *inner = phases.shape
    phases = phases.view(rows, channels // stride**2, stride, stride, *inner)
    back = phases.new_zeros(rows, channels // stride**2, *size)
    for i, j in product(range(stride), repeat=2):
        (rows_at, rows_from), (columns_at, columns_from) = (
            _places(phase, stride, *each)
            for phase, each in zip(
                (i, j), zip(padding, size, inner, strict=True), strict=True
            )
        )
        back[:, :, rows_at, columns_at] = phases[:, :, i, j, rows_from, columns_from]
    return back


def _places(
    phase: int, stride: int, pad: int, size: int, count: int
) -> tuple[slice, slice]:
    """Return the places that a phase is written to, and its entries that are."""
    start = (phase - pad) % stride
    first = (start + pad) // stride
    number = max(0, min(-(-(size - start) // stride), count - first))
    return slice(start, start + stride * number, stride), slice(first, first + number)
