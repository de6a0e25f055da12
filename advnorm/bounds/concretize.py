r"""Lower bounds of linear forms over a box, or over an L2 ball cut with a box.

Over a box of centre m and radius r, :math:`a^\top x + b` is at least
:math:`a^\top m - |a|^\top r + b`; over the ball :math:`\{c + s \odot \delta : \|\delta\|_2
\le \epsilon\}` cut with the box it falls from :math:`a^\top c + b` by a maximum, below.
Each is attained.

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

from advnorm.bounds.box import Ball, Box
from advnorm.bounds.linear_forms import LinearForms, inner

ROUNDS = 16
"""Most rounds of the multiplier; fewer would do no harm but to tightness."""
CACHED = 2**16
"""Entries of rows that are worked on together, over and over, on a CPU."""


def concretize(box: Box, forms: LinearForms) -> Tensor:
    """Return the lower bound of each linear form in the box: ``(rows, batch)``."""
    a = forms.coefficients
    bound = inner(a, box.centre) - inner(a.abs(), box.radius)
    if box.ball is not None:
        ball = inner(a, box.ball.centre) - _fall(a, box, box.ball)
        if box.ball.error is not None:
            ball = ball - inner(a.abs(), box.ball.error)
        bound = torch.maximum(bound, ball)
    return bound + forms.bias


def _fall(a: Tensor, box: Box, ball: Ball) -> Tensor:
    """Return how far each form falls from the ball's centre inside of the box."""
    down, up = ball.room(box.lower, box.upper)
    return torch.cat(
        [
            max_decrease(
                (rows * ball.scale).flatten(2),
                torch.where(rows > 0, down, up).flatten(2),
                ball.eps,
            )
            for rows in torch.split(a, _chunk(a))
        ]
    )


def _chunk(a: Tensor) -> int:
    """Return how many rows to take at a time: so many as a CPU's cache holds."""
    return len(a) if a.is_cuda else max(1, CACHED // max(1, a[:1].numel()))


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
