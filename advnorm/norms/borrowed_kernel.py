r"""The inner loop of borrowed moments, with its derivative by hand.

As one function it reads each feature map as often as PyTorch's batch norm does. It cannot
be differentiated twice: see :func:`advnorm.norms.twice_differentiable`.
"""

from typing import Any

import torch
from torch import Tensor

from advnorm.norms.moments import Moments


def borrowed_batch_norm(
    x: Tensor, lender: slice, w: Tensor, b: Tensor, eps: float
) -> tuple[Tensor, Moments]:
    r"""Return :math:`\gamma (x - \mu) / \sqrt{\sigma^2 + c} + \beta`, and the moments.

    The moments (no gradient) are those of the rows ``lender``, to which the gradients of
    all rows go back.
    """
    flat = x.reshape(*x.shape[:2], -1)
    y, mean, var = _BorrowedBatchNorm.apply(flat, lender, w, b, eps)  # type: ignore[no-untyped-call]
    return y.view(x.shape), Moments(mean, var, flat[lender].numel() // x.shape[1])


def refuse_second_derivative() -> None:
    """Refuse a second derivative: these functions have none, and it would be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "dual and borrowed norms are differentiated once: for a second time, put "
            "forward and backward passes into 'with norms.twice_differentiable(model):'"
        )


class _BorrowedBatchNorm(torch.autograd.Function):
    r"""Normalize all rows by the moments of some: see :func:`borrowed_batch_norm`.

    With :math:`\rho = (\sigma^2 + c)^{-1/2}`, sums over *all* rows of the gradient g and
    of :math:`g (x - \mu)`, and m values a feature in the lender's rows,

    .. math::
        \bar x = \gamma \rho \Big(g - \frac{[\text{lent}]}{m} \Big(\sum g
            + \rho^2 (x - \mu) \sum g (x - \mu)\Big)\Big)
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, lender: slice, w: Tensor, b: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        lent = x[lender]
        m = lent.shape[0] * lent.shape[2]
        mean = lent.sum((0, 2)) / m
        room = lent - mean[:, None]
        var = room.mul_(room).sum((0, 2)) / m
        del room
        y = torch.native_batch_norm(x, w, b, mean, var, False, 0.0, eps)[0]
        ctx.save_for_backward(x, w, mean, var)
        ctx.lender, ctx.eps = lender, eps
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Any, ...]:
        refuse_second_derivative()
        x, w, mean, var = ctx.saved_tensors
        dx, dw, db = torch.ops.aten.native_batch_norm_backward(  # the moments held fixed
            g, x, w, mean, var, None, None, False, ctx.eps, [True, True, True]
        )
        lent, rho = x[ctx.lender], torch.rsqrt(var + ctx.eps)
        m, scale = lent.shape[0] * lent.shape[2], w * rho
        slope = -scale * rho * dw / m
        shift = -scale * db / m - slope * mean
        dx[ctx.lender].add_((lent * slope[:, None]).add_(shift[:, None]))
        return dx, None, dw, db, None
