"""The squares that Square Attack proposes, Linf (Algorithm 2) and L2 (Algorithm 3).

A proposal is made from the present image, what the norm needs of the clean one (``base``)
and uniform numbers; there may be several an image. ``advnorm.attacks.square`` has the
equations.
"""

from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.draws import Draws
from advnorm.threat import Threat

PLACES = 5  # numbers a query: row and column of two squares, one turn; then the signs


class SquareState(Protocol):
    """The present images of samples, and what the norm needs of their clean images."""

    @property
    def x(self) -> Tensor:
        """The present images, contiguous."""
        ...

    @property
    def base(self) -> Tensor:
        """What the norm's ``base`` returned for them."""
        ...


class Proposals(NamedTuple):
    """Proposed images: which differ from the present ones, and a function to make them."""

    changed: Tensor
    images: Callable[[Tensor], Tensor]


Window = tuple[Tensor, Tensor, Tensor, Tensor]


def window(places: Tensor, size: int, shape: torch.Size) -> Window:
    """Return the index of a square per sample, its corner from uniforms ``(batch, 2)``."""
    batch, channels, height, width = shape
    free = places.new_tensor([height - size + 1, width - size + 1])
    corner = (places * free).long()
    side = torch.arange(size, device=places.device)
    return (
        torch.arange(batch, device=places.device)[:, None, None, None],
        torch.arange(channels, device=places.device)[:, None, None],
        (corner[:, :1] + side)[:, None, :, None],
        (corner[:, 1:] + side)[:, None, None, :],
    )


def pixels(places: Tensor, size: int, shape: torch.Size) -> Tensor:
    """Return the same squares as numbers of pixels of flat images, ``(batch, pixels)``."""
    channels, height, width = shape
    free = places.new_tensor([height - size + 1, width - size + 1])
    corner = (places * free).long()
    every = torch.arange(channels * height * width, device=places.device).view(shape)
    inside = every[:, :size, :size].flatten()
    return (corner[:, :1] * width + corner[:, 1:]) + inside


def _signs(uniform: Tensor, like: Tensor) -> Tensor:
    """Turn uniform numbers into fair signs."""
    return (uniform - 0.5).sign().to(like.dtype)


def _linf_start(clean: Tensor, threat: Threat, draws: Draws) -> Tensor:
    """Return vertical stripes, one sign per channel and column."""
    signs = _signs(draws.uniform(clean.shape[1], 1, clean.shape[3]), clean)
    return threat.project(clean + threat.eps * signs, clean)


def _linf_size(p: float, height: int, width: int) -> int:
    return min(max(round(sqrt(p * height * width)), 1), height, width)


def _linf_base(clean: Tensor, threat: Threat) -> Tensor:
    """Return the lowest and the highest admissible image, ``(batch, 2, *image)``."""
    edges = [threat.project(clean + sign * threat.eps, clean) for sign in (-1, 1)]
    return torch.stack(edges, 1)


def _linf_propose(
    active: SquareState, of: Tensor, numbers: Tensor, size: int, threat: Threat
) -> Proposals:
    """Set a square to the edge of the ball; the rest is admissible already."""
    shape = active.x.shape[1:]
    at = pixels(numbers[:, :2], size, shape)
    up = (numbers[:, PLACES:] > 0.5).long().repeat_interleave(size**2, 1)
    flat, first = active.x.flatten(1), of[:, None] * shape.numel()
    edge = active.base.take(2 * first + up * shape.numel() + at)

    def images(rows: Tensor) -> Tensor:
        x = flat.index_select(0, of[rows])
        return x.scatter_(1, at[rows], edge[rows]).view(-1, *shape)

    return Proposals((edge != flat.take(first + at)).any(1), images)


def _l2_start(clean: Tensor, threat: Threat, draws: Draws) -> Tensor:
    """Return a grid of about 5 x 5 patterns, each with its turn, a sign per channel."""
    batch, channels, height, width = clean.shape
    size = max(min(height, width) // 5, 1)
    tiles, used = (height // size, width // size), (height % size, width % size)
    turns = draws.stream("turn").uniform(1, *tiles, 1, 1)
    signs = _signs(draws.stream("sign").uniform(channels, *tiles, 1, 1), clean)
    grid = (signs * _turned(bumps(size, clean.dtype, clean.device), turns)).transpose(3, 4)
    grid = grid.reshape(batch, channels, tiles[0] * size, tiles[1] * size)
    top, left = used[0] // 2, used[1] // 2
    change = F.pad(grid, (left, used[1] - left, top, used[0] - top))
    return threat.project(clean + threat.eps * _unit(change, (1, 2, 3)), clean)


def _l2_size(p: float, height: int, width: int) -> int:
    """Return an odd side of at least 3, where the image is large enough."""
    side = max(round(sqrt(p * height * width)), 3)
    return min(side + (side + 1) % 2, height, width)


def _l2_base(clean: Tensor, threat: Threat) -> Tensor:
    return clean


def _l2_propose(
    active: SquareState, of: Tensor, numbers: Tensor, size: int, threat: Threat
) -> Proposals:
    """Move the budget of a second square, and what is unused, into the first."""
    x, clean = active.x.index_select(0, of), active.base.index_select(0, of)
    proposed = threat.project(
        clean + _l2_moved(x - clean, numbers, size, threat.eps), clean
    )
    return Proposals((proposed != x).flatten(1).any(1), proposed.__getitem__)


def _l2_moved(change: Tensor, numbers: Tensor, size: int, eps: float) -> Tensor:
    """Return the changes after one proposal each; ``change`` is overwritten."""
    unused = (eps**2 - change.square().sum((1, 2, 3), keepdim=True)).clamp_(min=0)
    first = window(numbers[:, :2], size, change.shape)
    second = window(numbers[:, 2:4], size, change.shape)
    old = change[first]
    signs = _signs(numbers[:, PLACES:, None, None], old)
    pattern = _turned(bumps(size, old.dtype, old.device), numbers[:, 4, None, None, None])
    new = _unit(signs * pattern + _unit(old, (2, 3)), (2, 3))
    budget = old.square().sum((2, 3), keepdim=True) + unused / change.shape[1]
    change[first] = 0  # so that pixels of both squares count once
    budget += change[second].square().sum((2, 3), keepdim=True)
    change[second] = 0
    change[first] = new * budget.sqrt()
    return change


@lru_cache(maxsize=64)
def bumps(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    r"""Return the pattern of equation (2): a bump above, its negative below, unit length.

    The bump of a rectangle falls with the Chebyshev distance D from its centre:
    :math:`\sum_{k=D}^{m} (k + 1)^{-2}`, m the half of its longer side.
    """
    half = size // 2
    pattern = torch.cat([_bump(half, size), -_bump(size - half, size)])
    return _unit(pattern, (0, 1)).to(device, dtype)


def _bump(height: int, width: int) -> Tensor:
    rows = torch.arange(height) - height // 2
    columns = torch.arange(width) - width // 2
    distance = torch.maximum(rows.abs()[:, None], columns.abs())
    most = max(height // 2, width // 2)
    terms = torch.arange(most + 1, 0, -1).double() ** -2
    return terms.cumsum(0)[most - distance]


def _turned(pattern: Tensor, turns: Tensor) -> Tensor:
    """Turn the pattern on its side where the uniform number says so."""
    return torch.where(turns < 0.5, pattern, pattern.T)


def _unit(change: Tensor, dims: tuple[int, ...]) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(change, dim=dims, keepdim=True)
    return change / norm.clamp(min=torch.finfo(change.dtype).tiny)


class SquareNorm(NamedTuple):
    """What differs between the norms.

    ``propose`` takes the samples, which of them each proposal belongs to ``(proposals,)``,
    uniform numbers ``(proposals, numbers)``, the size of the squares and the threat.
    """

    start: Callable[[Tensor, Threat, Draws], Tensor]
    base: Callable[[Tensor, Threat], Tensor]
    size: Callable[[float, int, int], int]
    propose: Callable[[SquareState, Tensor, Tensor, int, Threat], Proposals]


NORMS = {
    "linf": SquareNorm(_linf_start, _linf_base, _linf_size, _linf_propose),
    "l2": SquareNorm(_l2_start, _l2_base, _l2_size, _l2_propose),
}
