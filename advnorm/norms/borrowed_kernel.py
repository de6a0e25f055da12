r"""Kernel of the borrowed norm: forward and backward pass in one autograd function.

It reads each feature map as often as PyTorch's batch norm does. It can be differentiated
only once: see :func:`advnorm.norms.twice_differentiable`.
"""

from typing import Any

import torch
from torch import Tensor

from advnorm.norms.kernel_tools import TWICE, refuse_second_derivative
from advnorm.norms.moments import Moments


def borrowed_batch_norm(
    x: Tensor, lender: slice, w: Tensor, b: Tensor, eps: float
) -> tuple[Tensor, Moments]:
    r"""Return :math:`\gamma (x - \mu) / \sqrt{\sigma^2 + c} + \beta`, and the moments.

    The moments are those of the rows ``lender``; the gradients of all rows flow back to
    these rows through them. The moments returned carry no gradient.
    """
    flat = x.reshape(*x.shape[:2], -1)
    y, mean, var = _BorrowedBatchNorm.apply(flat, lender, w, b, eps)  # type: ignore[no-untyped-call]
    return y.view(x.shape), Moments(mean, var, flat[lender].numel() // x.shape[1])


class _BorrowedBatchNorm(torch.autograd.Function):
    r"""Normalize all rows by the moments of the lender's rows.

    With :math:`\rho = (\sigma^2 + c)^{-1/2}`, sums over *all* rows of the gradient g and
    of :math:`g (x - \mu)`, and m values a feature in the lender's rows,

    .. math::
        \bar x = \gamma \rho \Big(g - \frac{[\text{lender}]}{m} \Big(\sum g
            + \rho^2 (x - \mu) \sum g (x - \mu)\Big)\Big)
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, lender: slice, w: Tensor, b: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        lender_rows = x[lender]
        m = lender_rows.shape[0] * lender_rows.shape[2]
        mean = lender_rows.sum((0, 2)) / m
        centred = lender_rows - mean[:, None]
        var = centred.mul_(centred).sum((0, 2)) / m
        del centred
        y = torch.native_batch_norm(x, w, b, mean, var, False, 0.0, eps)[0]
        ctx.save_for_backward(x, w, mean, var)
        ctx.lender, ctx.eps = lender, eps
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Any, ...]:
        refuse_second_derivative("borrowed", TWICE)
        x, w, mean, var = ctx.saved_tensors
        dx, dw, db = torch.ops.aten.native_batch_norm_backward(  # with the moments fixed
            g, x, w, mean, var, None, None, False, ctx.eps, [True, True, True]
        )
        lender_rows, rho = x[ctx.lender], torch.rsqrt(var + ctx.eps)
        m, scale = lender_rows.shape[0] * lender_rows.shape[2], w * rho
        slope = -scale * rho * dw / m
        shift = -scale * db / m - slope * mean
        dx[ctx.lender].add_((lender_rows * slope[:, None]).add_(shift[:, None]))
        return dx, None, dw, db, None
