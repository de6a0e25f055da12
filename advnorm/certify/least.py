r"""The least value of linear forms over a box, or over an L2 ball cut with a box.

Over a box of centre m and radius r, :math:`a^\top x + b` is at least
:math:`a^\top m - |a|^\top r + b`; over the ball :math:`\{c + s \odot \delta : \|\delta\|_2
\le \epsilon\}` cut with the box it falls from :math:`a^\top c + b` by what
:mod:`advnorm.certify.reach` says. Each is attained.
"""

import torch
from torch import Tensor

from advnorm.certify.box import Ball, Box
from advnorm.certify.linear import Rows, inner
from advnorm.certify.reach import reach


def least(box: Box, rows: Rows) -> Tensor:
    """Return the least value of each linear form in the box: ``(rows, batch)``."""
    a = rows.coefficients
    found = inner(a, box.centre) - inner(a.abs(), box.radius)
    if box.ball is not None:
        found = torch.maximum(found, inner(a, box.ball.centre) - _fall(a, box, box.ball))
    return found + rows.bias


def _fall(a: Tensor, box: Box, ball: Ball) -> Tensor:
    """Return how far each form falls from the ball's centre inside of the box."""
    down, up = ball.room(box.lower, box.upper)
    room = torch.where(a > 0, down, up)
    return reach((a * ball.scale).flatten(2), room.flatten(2), ball.eps)
