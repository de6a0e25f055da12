r"""Projections and directions of the two sparse norms, on flat batches.

The projection onto the L1 ball inside the box (Croce & Hein, 2021, arXiv:2103.01208, Prop.
2.1) solves

.. math::
    \min_\delta \|\delta - y\|_2 \quad \text{s.t.} \quad \|\delta\|_1 \le \epsilon, \;
    l_i \le \delta_i \le h_i

with :math:`l_i \le 0 \le h_i`. With :math:`c_i` the room of feature i in the direction of
:math:`y_i`, its solution is

.. math::
    |\delta_i| = \min\bigl(\max(|y_i| - \lambda, 0), c_i\bigr), \qquad
    \phi(\lambda) = \sum_i |\delta_i| = \epsilon

where :math:`\lambda = 0` if :math:`\phi(0) \le \epsilon`. The function falls and is
piecewise linear: Newton's method, kept inside a bracket, ends on the exact piece.
"""

import torch
from torch import Tensor

_ROUNDS = 200  # a limit that only rounding could reach: a round halves the bracket


def project_l1_box(change: Tensor, radius: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the nearest changes inside the L1 ball and the box.

    Args:
        change: The changes, shape ``(batch, d)``.
        radius: One radius per sample, shape ``(batch, 1)``.
        low: The smallest change of each feature, at most 0.
        high: The largest change of each feature, at least 0.

    >>> change, room = torch.tensor([[0.5, -0.3, 0.1]]), torch.ones(1, 3)
    >>> project_l1_box(change, torch.tensor([[0.4]]), -room, room)
    tensor([[ 0.3000, -0.1000,  0.0000]])
    """
    size, cap = change.abs(), torch.where(change > 0, high, -low).clamp_(min=0)
    shrunk = (size - _multiplier(size, cap, radius)).clamp_(min=0)
    return torch.minimum(shrunk, cap).mul_(change.sign())


def _multiplier(size: Tensor, cap: Tensor, radius: Tensor) -> Tensor:
    r"""Return :math:`\lambda` of each row, shape ``(batch, 1)``.

    A row that is solved no longer changes, so its result does not depend on the others.
    """
    unit = torch.finfo(size.dtype).eps
    multiplier = torch.zeros_like(radius)
    excess = torch.minimum(size, cap).sum(1, keepdim=True) - radius
    rows = (excess > 0).squeeze(1).nonzero().squeeze(1)
    size, cap, radius = size[rows], cap[rows], radius[rows]
    now, below = torch.zeros_like(radius), torch.zeros_like(radius)
    above = size.amax(1, keepdim=True) if len(rows) else below
    for _ in range(_ROUNDS):
        if not len(rows):
            break
        shrunk = (size - now).clamp_(min=0)
        excess = torch.minimum(shrunk, cap).sum(1, keepdim=True) - radius
        slope = ((shrunk > 0) & (shrunk < cap)).to(size.dtype).sum(1, keepdim=True)
        below = torch.where(excess > 0, now, below)
        above = torch.where(excess > 0, above, now)
        is_solved = (excess.abs() <= 8 * unit * radius) | (above - below <= unit * above)
        multiplier[rows] = torch.where(excess.abs() <= 8 * unit * radius, now, above)
        newton = now + excess / slope  # infinite without a slope, and then outside
        inside = (newton > below) & (newton < above)
        now = torch.where(inside, newton, (below + above) / 2)
        left = (~is_solved).squeeze(1).nonzero().squeeze(1)
        if len(left) < len(rows):
            parts = (rows, size, cap, radius, now, below, above)
            rows, size, cap, radius, now, below, above = (part[left] for part in parts)
    return multiplier


def top_signs(grad: Tensor, count: Tensor) -> Tensor:
    """Return the signs of each row's largest ``count`` entries, of L1 length 1.

    Entries as large as the smallest of them are kept too; zero stays zero.

    >>> top_signs(torch.tensor([[3.0, -4.0, 1.0]]), torch.tensor([2]))
    tensor([[ 0.5000, -0.5000,  0.0000]])
    """
    if not len(grad):
        return grad
    size = grad.abs()
    largest = size.topk(int(count.max()), dim=1).values
    limit = largest.gather(1, count[:, None] - 1)
    signs = grad.sign().mul_(size >= limit)
    return signs / signs.abs().sum(1, keepdim=True).clamp(min=1)


def project_l0_box(change: Tensor, count: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""Return the nearest changes in the box that change at most ``count`` features.

    To change feature i by the clipped :math:`c_i` in place of nothing takes
    :math:`y_i^2 - (y_i - c_i)^2 = c_i (2 y_i - c_i)` off the squared distance: the features
    of the largest such gain are kept.

    >>> change, room = torch.tensor([[0.5, -0.3, 0.1]]), torch.ones(1, 3)
    >>> project_l0_box(change, torch.tensor([1]), -room, room)
    tensor([[0.5000, 0.0000, 0.0000]])
    """
    clipped = torch.minimum(torch.maximum(change, low), high)
    most = int(count.max()) if len(count) else 0
    if not most:
        return torch.zeros_like(change)
    top = (clipped * (2 * change - clipped)).topk(min(most, change.shape[1]), dim=1)
    rank = torch.arange(top.indices.shape[1], device=change.device)
    keep = torch.zeros_like(change, dtype=torch.bool)
    keep.scatter_(1, top.indices, rank < count[:, None])
    return torch.where(keep, clipped, 0.0)
