r"""Where the entries of a map that an output depends on lie in an earlier map.

Going back through a window of stride s, padding p, dilation d and kernel k, a patch of size
n that begins at o becomes one of size :math:`(n-1)s + d(k-1) + 1` that begins at
:math:`o s - p`. Two patches with one stride, as the branches of a residual sum have, lie in
the smallest patch that holds both.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

Pair = Sequence[int]


class Outputs(NamedTuple):
    """Some entries of a map: each one's sample, channel, row and column."""

    sample: Tensor
    channel: Tensor
    top: Tensor
    left: Tensor


class Window(NamedTuple):
    """What an output of a convolution or of a pooling reads."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair


class ReceptiveField(NamedTuple):
    """Where the patch of output (i, j) of the last map lies in a map: static numbers."""

    last: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    size: Pair = (1, 1)

    def before(self, window: Window) -> "ReceptiveField":
        """Return the field in the input of a window, from that in its output."""
        moved = [
            (
                self.stride[i] * s,
                self.pad[i] * s + p,
                (self.size[i] - 1) * s + d * (k - 1) + 1,
            )
            for i, (k, s, p, d) in enumerate(zip(*window, strict=True))
        ]
        (sy, py, ny), (sx, px, nx) = moved
        return ReceptiveField(self.last, (sy, sx), (py, px), (ny, nx))

    def joined(self, other: "ReceptiveField") -> "ReceptiveField":
        """Return the smallest field that holds two of one stride."""
        assert self.stride == other.stride and self.last == other.last
        pads, sizes = [], []
        for p, q, n, m in zip(self.pad, other.pad, self.size, other.size, strict=True):
            pads.append(max(p, q))
            sizes.append(max(p, q) + max(n - p, m - q))
        return self._replace(pad=tuple(pads), size=tuple(sizes))

    def widened(self, a: Tensor, wide: "ReceptiveField") -> Tensor:
        """Return patches of this field as those of a field that holds it."""
        sides: list[int] = []
        for p, q, n, m in zip(self.pad, wide.pad, self.size, wide.size, strict=True):
            sides = [q - p, m - n - (q - p), *sides]
        return F.pad(a, sides) if any(sides) else a

    def cut(self, maps: Tensor, outputs: Outputs) -> Tensor:
        """Cut each output's patch out of its sample's maps, zeros beyond the edges."""
        over = self._over(maps.shape[2:])
        padded = F.pad(maps, (self.pad[1], over[1], self.pad[0], over[0]))
        windows = padded.unfold(2, self.size[0], 1).unfold(3, self.size[1], 1)
        top, left = outputs.top * self.stride[0], outputs.left * self.stride[1]
        if len(maps) == 1:  # the same for every sample
            return windows[0, :, top, left].transpose(0, 1)
        return windows[outputs.sample, :, top, left]

    def pasted(self, a: Tensor, outputs: Outputs, size: Pair) -> Tensor:
        """Return whole maps that are zero outside of the patches ``(2, outputs, ...)``."""
        over = self._over(size)
        height, width = (self.pad[i] + size[i] + over[i] for i in (0, 1))
        rows, columns = (
            (start * self.stride[i]).unsqueeze(1)
            + torch.arange(self.size[i], device=a.device)
            for i, start in enumerate((outputs.top, outputs.left))
        )
        places = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1).unsqueeze(1)
        maps = a.new_zeros((*a.shape[:3], height * width))
        maps = maps.scatter(3, places.expand_as(a.flatten(3)), a.flatten(3))
        maps = maps.view(*a.shape[:3], height, width)
        top, left = self.pad
        return maps[..., top : top + size[0], left : left + size[1]].contiguous()

    def inside(self, a: Tensor, size: Pair, outputs: Outputs) -> Tensor:
        """Drop what lies beyond the edges of a map."""
        if not any(self.pad) and not any(self._over(size)):
            return a
        ones = torch.ones((1, 1, *size), dtype=a.dtype, device=a.device)
        return a * self.cut(ones, outputs)

    def _over(self, size: Pair) -> list[int]:
        """Return how far the last patches reach beyond the lower and the right edge."""
        return [
            max(0, (self.last[i] - 1) * self.stride[i] - self.pad[i] + self.size[i] - side)
            for i, side in enumerate(size)
        ]
