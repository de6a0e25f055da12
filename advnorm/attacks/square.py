r"""Square Attack (Andriushchenko et al., 2020, https://arxiv.org/abs/1912.00049).

Random search that sees the logits only. Each query changes one square of the image at a
place drawn for the sample, and is kept if it lowers the margin
:math:`f_y(x) - \max_{k \ne y} f_k(x)`. The side of the square is :math:`\sqrt{p h w}`,
where p starts at 0.8 and is halved as the queries run out.

Linf (Algorithm 2): the square becomes :math:`x \pm \epsilon`, one sign a channel, from
vertical stripes of that kind. L2 (Algorithm 3): the square :math:`W_1` gains the budget of
a second one :math:`W_2`, which is cleared, and what the bounds left unused:

.. math::
    \nu_{W_1} \leftarrow \sqrt{\|\nu_{W_1 \cup W_2}\|^2 + (\epsilon^2 - \|\nu\|^2) / c}
    \;\, \overline{\rho \, \overline\eta + \overline{\nu_{W_1}}}, \quad
    \nu_{W_2} \leftarrow 0

in each of the c channels, with :math:`\nu = x' - x`, a bar for unit length, a random sign
:math:`\rho` and the pattern :math:`\eta` of :func:`bumps`.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.attacks.aims import LogitsFn, hard_labels
from advnorm.attacks.registry import ATTACKS
from advnorm.draws import Draws
from advnorm.threat import Threat

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # queries, of 10000
_BLOCK = 100  # queries whose random numbers are drawn at once
_PLACES = 5  # numbers a query: row and column of two squares, one turn; then the signs


@ATTACKS.register("square")
def square(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 5000,
    p_init: float = 0.8,
    draws: Draws | None = None,
) -> Tensor:
    """Search with random squares; a sample rests as soon as it is misclassified.

    Args:
        logits_fn: Maps images in the threat's bounds to logits; called without gradients.
        clean: Clean images, shape ``(batch, channels, height, width)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: The set to search, of norm ``"linf"`` or ``"l2"``.
        steps: Number of queries after that of the start.
        p_init: Share of the pixels that the first squares cover.
        draws: The samples' random numbers; by default those of samples 0, 1, ... under
            seed 0.

    Returns:
        The admissible images of the lowest margin met, same shape as ``clean``.
    """
    if clean.ndim != 4:
        raise ValueError(
            "Square Attack changes squares of pixels and needs images of shape (batch, "
            f"channels, height, width), not {tuple(clean.shape)}"
        )
    draws = draws or Draws.of(0, torch.arange(len(clean), device=clean.device))
    norm = _NORMS[threat.name]
    with torch.no_grad():
        clean, labels = clean.detach(), hard_labels(labels)
        x = norm.start(clean, threat, draws.stream("start"))
        margin = margins(logits_fn(x), labels)
        rows = torch.arange(len(clean), device=clean.device)
        live = _Live(rows, draws.keys, clean, x.clone(), labels, margin, margin)
        live = live.without_broken(x)
        for step in range(steps):
            if not len(live.rows):
                break
            if step % _BLOCK == 0:
                live = live.redraw(step, _PLACES + clean.shape[1])
            size = norm.size(share(step / steps, p_init), *clean.shape[2:])
            proposal = norm.propose(live, live.numbers[:, step % _BLOCK], size, threat)
            live = live.query(logits_fn, proposal).without_broken(x)
        x[live.rows] = live.x
    return x


def share(progress: float, p_init: float) -> float:
    """Return the share of pixels that a square covers, after this share of the queries.

    The published table is for 10000 queries, and is stretched to the number at hand.

    >>> [share(n / 10_000, 0.8) for n in (0, 10, 11, 50, 51, 9999)]
    [0.8, 0.8, 0.4, 0.4, 0.2, 0.0015625]
    """
    return p_init / 2.0 ** bisect_left(HALVINGS, int(progress * 10_000 + 1e-6))


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the lead of the label over the best other class, shape ``(batch,)``."""
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own.squeeze(1) - others.amax(1)


class _Live(NamedTuple):
    """The samples not broken yet, and what belongs to them."""

    rows: Tensor
    keys: Tensor
    clean: Tensor
    x: Tensor
    labels: Tensor
    margin: Tensor
    numbers: Tensor

    def without_broken(self, x: Tensor) -> "_Live":
        """Write the broken samples to their rows of ``x`` and return the others."""
        keep = (~(self.margin < 0)).nonzero().squeeze(1)
        if len(keep) == len(self.rows):
            return self
        x[self.rows] = self.x
        return _Live(*(part[keep] for part in self))

    def redraw(self, step: int, count: int) -> "_Live":
        stream = Draws(self.keys).stream("squares", step)
        return self._replace(numbers=stream.uniform(_BLOCK, count))

    def query(self, logits_fn: LogitsFn, proposal: Tensor) -> "_Live":
        """Keep the proposals that lower the margin.

        A proposal that changes nothing has the margin of what it repeats: it counts as a
        query, and costs no pass. With one channel that is one in two single pixels.
        """
        new = (proposal != self.x).flatten(1).any(1).nonzero().squeeze(1)
        if not len(new):
            return self
        margin = margins(logits_fn(proposal[new]), self.labels[new])
        better = (margin < self.margin[new]).nonzero().squeeze(1)
        rows = new[better]
        return self._replace(
            x=self.x.index_copy_(0, rows, proposal[rows]),
            margin=self.margin.index_copy(0, rows, margin[better]),
        )


Window = tuple[Tensor, Tensor, Tensor, Tensor]


def window(places: Tensor, size: int, shape: torch.Size) -> Window:
    """Return the index of a square a sample, its corner from uniforms ``(batch, 2)``."""
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


def _signs(uniform: Tensor, like: Tensor) -> Tensor:
    """Turn uniform numbers into fair signs."""
    return (uniform - 0.5).sign().to(like.dtype)


def _linf_start(clean: Tensor, threat: Threat, draws: Draws) -> Tensor:
    """Return vertical stripes, one sign a channel and column."""
    signs = _signs(draws.uniform(clean.shape[1], 1, clean.shape[3]), clean)
    return threat.project(clean + threat.eps * signs, clean)


def _linf_size(p: float, height: int, width: int) -> int:
    return min(max(round(sqrt(p * height * width)), 1), height, width)


def _linf_propose(live: _Live, numbers: Tensor, size: int, threat: Threat) -> Tensor:
    """Set a square to the edge of the ball; the rest is admissible already."""
    at = window(numbers[:, :2], size, live.x.shape)
    signs = _signs(numbers[:, _PLACES:, None, None], live.x)
    x = live.x.clone()
    base = live.clean[at]
    x[at] = threat.project(base + threat.eps * signs, base)
    return x


def _l2_start(clean: Tensor, threat: Threat, draws: Draws) -> Tensor:
    """Return a grid of about 5 x 5 patterns, each with its turn, a sign a channel."""
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


def _l2_propose(live: _Live, numbers: Tensor, size: int, threat: Threat) -> Tensor:
    """Move the budget of a second square, and what is unused, into the first."""
    change = live.x - live.clean
    unused = (threat.eps**2 - change.square().sum((1, 2, 3), keepdim=True)).clamp_(min=0)
    first = window(numbers[:, :2], size, change.shape)
    second = window(numbers[:, 2:4], size, change.shape)
    old = change[first]
    signs = _signs(numbers[:, _PLACES:, None, None], old)
    pattern = _turned(bumps(size, old.dtype, old.device), numbers[:, 4, None, None, None])
    new = _unit(signs * pattern + _unit(old, (2, 3)), (2, 3))
    budget = old.square().sum((2, 3), keepdim=True) + unused / change.shape[1]
    change[first] = 0  # so that pixels of both squares count once
    budget += change[second].square().sum((2, 3), keepdim=True)
    change[second] = 0
    change[first] = new * budget.sqrt()
    return threat.project(live.clean + change, live.clean)


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


class _Norm(NamedTuple):
    """What differs between the norms."""

    start: Callable[[Tensor, Threat, Draws], Tensor]
    size: Callable[[float, int, int], int]
    propose: Callable[[_Live, Tensor, int, Threat], Tensor]


_NORMS = {
    "linf": _Norm(_linf_start, _linf_size, _linf_propose),
    "l2": _Norm(_l2_start, _l2_size, _l2_propose),
}
