r"""The nearest point of a hyperplane inside the box of valid images.

This is the inner problem of the fast adaptive boundary attack (Croce & Hein, 2020,
https://arxiv.org/abs/1907.02044, section 2.2):

.. math::
    \min_z \|z - x\|_p \quad \text{s.t.} \quad \langle w, z \rangle = b, \;
    l \le z_i \le h

Let the gap be :math:`g = \langle w, x \rangle - b` and :math:`r_i` the room that pixel i
has in the direction that closes it. For both norms the solution moves pixel i by
:math:`\min(t v_i, r_i)` in that direction, with :math:`v_i = 1` for Linf (t is the radius)
and :math:`v_i = |w_i|` for L2 (t is the multiplier of the plane), where t solves

.. math:: \phi(t) = \sum_i \min(t |w_i| v_i, |w_i| r_i) = |g|.

The function rises, is concave and piecewise linear, so Newton's method from 0 never
overshoots; and each of its steps at least halves the lack :math:`|g| - \phi` or the slope,
since with R the lack and S the slope concavity gives
:math:`R_{k+1} / R_k + S_{k+1} / S_k \le 1`. It needs neither a sort nor a bracket, and a
handful of steps in practice. If no t suffices, all room is used: the plane misses the box,
and this is a corner nearest to it.
"""

from collections.abc import Callable
from math import isinf

import torch
from torch import Tensor

from advnorm.threat import Bounds

_ROUNDS = 100  # a limit that only rounding could reach: R S falls fourfold a round


def project_linf(x: Tensor, w: Tensor, b: Tensor, bounds: Bounds) -> Tensor:
    """Return the point of each plane in the box that is nearest in the largest change.

    Args:
        x: Points inside the bounds, shape ``(batch, d)``.
        w: Normals of the planes, shape ``(batch, d)``; zeros are fine.
        b: Offsets of the planes, shape ``(batch,)``.
        bounds: The box.

    >>> x, w = torch.tensor([[0.5, 0.9]]), torch.tensor([[1.0, 2.0]])
    >>> project_linf(x, w, torch.tensor([2.7]), (0.0, 1.0))
    tensor([[0.7000, 1.0000]])
    """
    return _project(x, w, b, bounds, torch.sign)


def project_l2(x: Tensor, w: Tensor, b: Tensor, bounds: Bounds) -> Tensor:
    """Return the point of each plane in the box that is nearest in Euclidean distance.

    The arguments are those of :func:`project_linf`.

    >>> x, w = torch.tensor([[0.5, 0.5]]), torch.tensor([[3.0, 4.0]])
    >>> project_l2(x, w, torch.tensor([2.5]), (0.0, 1.0))
    tensor([[0.3800, 0.3400]])
    """
    tiny = torch.finfo(x.dtype).tiny
    scale = w.abs().amax(1).clamp(min=tiny)  # the same plane; squares of w could underflow
    return _project(x, w / scale[:, None], b / scale, bounds, torch.positive)


def _project(
    x: Tensor, w: Tensor, b: Tensor, bounds: Bounds, speed: Callable[[Tensor], Tensor]
) -> Tensor:
    """Move each pixel by min(t v, room), where ``speed`` maps the weights to v, signed."""
    gap: Tensor = torch.linalg.vecdot(w, x, dim=1) - b
    towards = w * -gap.sign()[:, None]
    v = speed(towards)
    low, high = bounds
    weight = towards.abs()
    if isinf(low) or isinf(high):
        room = torch.where(towards > 0, high - x, x - low)
        cap = torch.where(weight > 0, weight * room, 0.0)
    else:
        centred = x - (low + high) / 2
        cap = (weight * ((high - low) / 2)).addcmul_(towards, centred, value=-1)
    t = _solve(towards * v, cap, gap.abs()[:, None])
    return torch.addcmul(x, v, t).clamp_(low, high)


def _solve(rate: Tensor, cap: Tensor, need: Tensor) -> Tensor:
    r"""Return the smallest t with :math:`\sum_i \min(t \, rate_i, cap_i) = need`.

    A row that is solved no longer changes, so its result does not depend on the others of
    the batch.
    """
    info = torch.finfo(rate.dtype)
    need = need.clamp(max=info.max)
    slope = _sum_where(cap, rate)
    t = torch.where(slope > 0, need / slope, rate.new_zeros(())).clamp_(max=info.max)
    rows = torch.arange(len(t), device=t.device)
    for _ in range(_ROUNDS):
        moved = rate * t[rows]
        lack = need - torch.minimum(moved, cap).sum(1, keepdim=True)
        slope = _sum_where(cap - moved, rate)
        lacks = (lack > 16 * info.eps * need) & (slope > 0)
        todo = lacks.squeeze(1).nonzero().squeeze(1)
        if not len(todo):
            break
        t[rows[todo]] = (t[rows[todo]] + lack[todo] / slope[todo]).clamp_(max=info.max)
        if 2 * len(todo) < len(rows):  # the copies pay
            rows, rate, cap, need = (part[todo] for part in (rows, rate, cap, need))
    return t


def _sum_where(room: Tensor, rate: Tensor) -> Tensor:
    """Sum the rates of the pixels with room left; by signs, far faster than a choice."""
    return room.sign().clamp_(min=0).mul_(rate).sum(1, keepdim=True)
