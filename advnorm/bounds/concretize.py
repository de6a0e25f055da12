r"""Lower bounds of linear forms over a box, or over an L2 ball cut with a box.

Over a box of centre m and radius r, :math:`a^\top x + b` is at least
:math:`a^\top m - |a|^\top r + b`; over the ball :math:`\{c + s \odot \delta : \|\delta\|_2
\le \epsilon\}` cut with the box it falls from :math:`a^\top c + b` by what
:mod:`advnorm.bounds.concretize_l2` says. Each is attained.
"""

import torch
from torch import Tensor

from advnorm.bounds.box import Ball, Box
from advnorm.bounds.concretize_l2 import max_decrease
from advnorm.bounds.linear_forms import LinearForms, inner

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
