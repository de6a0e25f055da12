r"""The squares that Square Attack proposes in L1 balls (Croce & Hein, 2021).

As in L2 (Algorithm 3), with lengths in L1 (https://arxiv.org/abs/2103.01208, section 4):
the square :math:`W_1` gains the budget of a second one :math:`W_2`, which is cleared, and
what the bounds left unused,

.. math::
    \nu_{W_1} \leftarrow \bigl(c \, \|\nu_{W_1 \cup W_2}\|_1 + \epsilon - \|\nu\|_1\bigr)
    \, \overline{\rho \, \overline\eta + \overline{\nu_{W_1}}}, \quad
    \nu_{W_2} \leftarrow 0

in each of the c channels, a bar for unit length in L1; the result is projected onto the
ball inside the box. The bump of the pattern :math:`\eta` falls faster than in L2:
:math:`\sum_{k=D}^{m} (k + 1)^{-4}`.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.attacks.square_proposals import (
    NORMS,
    PLACES,
    Proposals,
    SquareNorm,
    SquareState,
    window,
)
from advnorm.draws import Draws
from advnorm.threat import Threat

_SQUARE = (2, 3)  # the dimensions of one channel
_L2 = NORMS["l2"]


def _start(clean: Tensor, threat: Threat, draws: Draws) -> Tensor:
    """Return a grid of about 5 x 5 patterns, each with its turn, a sign per channel."""
    batch, channels, height, width = clean.shape
    size = max(min(height, width) // 5, 1)
    tiles, used = (height // size, width // size), (height % size, width % size)
    turns = draws.stream("turn").uniform(1, *tiles, 1, 1)
    signs = (draws.stream("sign").uniform(channels, *tiles, 1, 1) - 0.5).sign()
    pattern = sharp_bumps(size, clean.dtype, clean.device)
    grid = signs.to(clean) * torch.where(turns < 0.5, pattern, pattern.T)
    grid = grid.transpose(3, 4).reshape(batch, channels, tiles[0] * size, tiles[1] * size)
    top, left = used[0] // 2, used[1] // 2
    change = F.pad(grid, (left, used[1] - left, top, used[0] - top))
    return threat.project(clean + change, clean)


def _propose(
    active: SquareState, of: Tensor, numbers: Tensor, size: int, threat: Threat
) -> Proposals:
    """Move the budget of a second square, and what is unused, into the first."""
    x, clean = active.x.index_select(0, of), active.base.index_select(0, of)
    moved = _moved(x - clean, numbers, size, threat.eps)
    proposed = threat.project(clean + moved, clean)
    return Proposals((proposed != x).flatten(1).any(1), proposed.__getitem__)


def _moved(change: Tensor, numbers: Tensor, size: int, eps: float) -> Tensor:
    """Return the changes after one proposal each; ``change`` is overwritten."""
    unused = (eps - change.abs().sum((1, 2, 3), keepdim=True)).clamp_(min=0)
    first = window(numbers[:, :2], size, change.shape)
    second = window(numbers[:, 2:4], size, change.shape)
    old = change[first]
    signs = (numbers[:, PLACES:, None, None] - 0.5).sign().to(old)
    pattern = sharp_bumps(size, old.dtype, old.device)
    turned = torch.where(numbers[:, 4, None, None, None] < 0.5, pattern, pattern.T)
    new = _unit(signs * turned + _unit(old))
    budget = old.abs().sum(_SQUARE, keepdim=True)
    change[first] = 0  # so that pixels of both squares count once
    budget += change[second].abs().sum(_SQUARE, keepdim=True)
    change[second] = 0
    change[first] = new * (change.shape[1] * budget + unused)
    return change


@lru_cache(maxsize=64)
def sharp_bumps(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the pattern: a bump above, its negative below, of length 1 in L1."""
    half = size // 2
    pattern = torch.cat([_bump(half, size), -_bump(size - half, size)])
    return (pattern / pattern.abs().sum()).to(device, dtype)


def _bump(height: int, width: int) -> Tensor:
    rows = torch.arange(height) - height // 2
    columns = torch.arange(width) - width // 2
    distance = torch.maximum(rows.abs()[:, None], columns.abs())
    most = max(height // 2, width // 2)
    terms = torch.arange(most + 1, 0, -1).double() ** -4
    return terms.cumsum(0)[most - distance]


def _unit(change: Tensor) -> Tensor:
    length = change.abs().sum(_SQUARE, keepdim=True)
    return change / length.clamp(min=torch.finfo(change.dtype).tiny)


L1_SQUARES = SquareNorm(_start, _L2.base, _L2.size, _propose)
"""Square Attack in L1 balls."""
