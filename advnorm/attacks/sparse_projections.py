r"""The point of a hyperplane inside the box of valid images that is nearest in L1 or L0.

The inner problem of the fast adaptive boundary attack (Croce & Hein, 2020,
https://arxiv.org/abs/1907.02044, section 2.2) for the sparse norms. A change of feature i
by t closes the gap by :math:`t |w_i|`. So in L1 the features of the largest weights are
moved first, each as far as the box allows, and the last of them as far as needed. In L0
each feature is moved as far as the box allows, those that close most first.
"""

import torch
from torch import Tensor

from advnorm.threat import Bounds


def project_l1(x: Tensor, w: Tensor, b: Tensor, bounds: Bounds) -> Tensor:
    """Return the point of each plane in the box that is nearest in the sum of changes.

    Where the plane misses the box it is a corner nearest to it. The arguments are those of
    :func:`~advnorm.attacks.projections.project_linf`.

    >>> x, w = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> project_l1(x, w, torch.tensor([2.75]), (0.0, 1.0))
    tensor([[0.7500, 1.0000]])
    """
    low, high = bounds
    gap: Tensor = torch.linalg.vecdot(w, x, dim=1) - b
    towards = w * -gap.sign()[:, None]
    room = torch.where(towards > 0, high - x, x - low).clamp_(min=0)
    weight, order = towards.abs().sort(dim=1, descending=True, stable=True)
    room = room.gather(1, order)
    closes = torch.where(weight > 0, weight * room, 0.0)
    before = closes.cumsum(1) - closes
    lacks = (gap.abs()[:, None] - before).clamp_(min=0)
    tiny = torch.finfo(x.dtype).tiny
    moved = torch.minimum(lacks / weight.clamp(min=tiny), room) * (weight > 0)
    change = torch.zeros_like(x).scatter_(1, order, moved)
    return torch.addcmul(x, change, towards.sign()).clamp_(low, high)


def project_l0(x: Tensor, w: Tensor, b: Tensor, bounds: Bounds) -> Tensor:
    """Return a point of the box on or beyond each plane, with the fewest changes.

    Where the plane misses the box it is a corner nearest to it. The arguments are those of
    :func:`~advnorm.attacks.projections.project_linf`.

    >>> x, w = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 2.0]])
    >>> project_l0(x, w, torch.tensor([2.25]), (0.0, 1.0))
    tensor([[0.5000, 1.0000]])
    """
    gap: Tensor = torch.linalg.vecdot(w, x, dim=1) - b
    closes, order = feature_gains(x, w * -gap.sign()[:, None], bounds)
    needed = 1 + (closes.cumsum(1) < gap.abs()[:, None]).sum(1)
    return move_features(x, w * -gap.sign()[:, None], order, needed * (gap != 0), bounds)


def feature_gains(x: Tensor, towards: Tensor, bounds: Bounds) -> tuple[Tensor, Tensor]:
    """Return how much each feature can add along ``towards``, largest first, with it."""
    low, high = bounds
    room = torch.where(towards > 0, high - x, x - low).clamp_(min=0)
    gains = torch.where(towards != 0, towards.abs() * room, 0.0)
    ordered = gains.sort(dim=1, descending=True, stable=True)
    return ordered.values, ordered.indices


def move_features(
    x: Tensor, towards: Tensor, order: Tensor, count: Tensor, bounds: Bounds
) -> Tensor:
    """Move each row's first ``count`` features of an order to their end of the box."""
    rank = torch.arange(order.shape[1], device=x.device).expand_as(order)
    place = torch.zeros_like(order).scatter_(1, order, rank)
    low, high = bounds
    ends = torch.where(towards > 0, high, torch.where(towards < 0, low, x))
    return torch.where(place < count[:, None], ends, x)
