r"""The least value of linear forms over a box, or over an L2 ball cut with a box.

Over a box of centre m and radius r, :math:`a^\top x + b` is at least
:math:`a^\top m - |a|^\top r + b`; over the ball :math:`\{c + s \odot \delta : \|\delta\|_2
\le \epsilon\}` it is at least :math:`a^\top c - \epsilon \|s \odot a\|_2 + b`. Each is
attained; over the intersection both hold, and the larger is taken.
"""

import torch
from torch import Tensor

from advnorm.certify.box import Box
from advnorm.certify.linear import Rows, inner


def least(box: Box, rows: Rows) -> Tensor:
    """Return the least value of each linear form in the box: ``(rows, batch)``."""
    a = rows.coefficients
    found = inner(a, box.centre) - inner(a.abs(), box.radius)
    if box.ball is not None:
        ball = box.ball
        square = (a * ball.scale).square().flatten(2).sum(2)
        tiny = torch.finfo(square.dtype).tiny  # the root has no gradient at zero
        reach = ball.eps * square.clamp(min=tiny).sqrt()
        found = torch.maximum(found, inner(a, ball.centre) - reach)
    return found + rows.bias
