r"""How far a linear form falls over an L2 ball that is cut with a box.

With slopes :math:`g`, the room :math:`h \ge 0` that the box leaves each value on the way
down, and the radius :math:`\epsilon`, it is

.. math::
    \max_{0 \le t \le h, \; \|t\|_2 \le \epsilon} \sum_i |g_i| t_i
    = \min_{\mu \ge 0} \; \sum_i \bigl( |g_i| t_i - \tfrac \mu 2 t_i^2 \bigr)
      + \tfrac \mu 2 \epsilon^2,
    \qquad t_i = \min(|g_i| / \mu, h_i).

Every :math:`\mu` gives a bound that holds; the best one is that for which :math:`\|t\|_2 =
\epsilon`. From :math:`\mu = \|g\|_2 / \epsilon` on, the values that touch the box are taken
for capped and :math:`\mu` follows from the others; it only falls, more are capped, and no
value is ever let go, so that this ends. The bound is flat at its minimum: a multiplier that
is right to half of the digits gives all of them, and that takes three rounds or so.
"""

import torch
from torch import Tensor

ROUNDS = 16
"""At most; fewer would do no harm but to tightness."""


def max_decrease(slope: Tensor, room: Tensor, eps: float) -> Tensor:
    """Return the fall over the last dimension, differentiable in slope and room."""
    size = slope.abs()
    if eps == 0:
        return (size * 0).sum(-1)
    with torch.no_grad():
        multiplier = _multiplier(size, room, eps)
    capped = size >= multiplier.unsqueeze(-1) * room
    tiny = torch.finfo(size.dtype).tiny
    step = torch.where(capped, room, size / multiplier.clamp(min=tiny).unsqueeze(-1))
    half = multiplier / 2
    return (size * step).sum(-1) - half * step.square().sum(-1) + half * eps**2


def _multiplier(size: Tensor, room: Tensor, eps: float) -> Tensor:
    multiplier: Tensor = torch.linalg.vector_norm(size, dim=-1) / eps
    square, most = size.square(), room.square()
    enough = 1 - torch.finfo(size.dtype).eps ** 0.5
    for _ in range(ROUNDS):
        capped = size >= multiplier.unsqueeze(-1) * room
        left = eps**2 - (most * capped).sum(-1)
        free = (square * ~capped).sum(-1)
        better = (free / left).sqrt()
        better = torch.where((left > 0) & (better < multiplier), better, multiplier)
        better = torch.where(free == 0, 0.0, better)  # the box is inside of the ball
        if bool((better >= enough * multiplier).all()):
            break
        multiplier = better
    return multiplier
