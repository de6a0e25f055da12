r"""The inner loop of borrowed moments, with its derivative by hand.

As one function it reads each feature map as often as PyTorch's batch norm does. It cannot
be differentiated twice: see :func:`advnorm.norms.twice`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.norms.moments import Moments


class Borrowed(NamedTuple):
    """Both parts normalized by the lender's moments, and the moments (no gradient)."""

    lent: Tensor
    rest: Tensor
    moments: Moments


def borrow(lent: Tensor, rest: Tensor, w: Tensor, b: Tensor, eps: float) -> Borrowed:
    r"""Return :math:`\gamma (x - \mu) / \sqrt{\sigma^2 + c} + \beta` of both parts.

    The moments are those of ``lent``, to which the gradients of ``rest`` go back too.
    """
    own, other, mean, var = _Borrow.apply(lent, rest, w, b, eps)  # type: ignore[no-untyped-call]
    return Borrowed(own, other, Moments(mean, var, lent.numel() // lent.shape[1]))


def _batch_norm(
    x: Tensor, w: Tensor | None, b: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return PyTorch's batch norm of ``x``, its mean, inverse deviation and variance.

    With a momentum of 1 the running statistics are the batch's own: a variance that was
    measured, where one taken back from the inverse deviation would cancel.
    """
    n, mean, var = x.numel() // x.shape[1], x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
    y, _, inverse = torch.native_batch_norm(x, w, b, mean, var, True, 1.0, eps)
    return y, mean, inverse, var * ((n - 1) / n)


def refuse_twice() -> None:
    """Refuse a second derivative: these functions have none, and it would be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "dual and borrowed norms are differentiated once: for a second time, put "
            "forward and backward passes into 'with norms.twice(model):'"
        )


class _Borrow(torch.autograd.Function):
    r"""Normalize all rows by the moments of some: see :func:`borrow`.

    The lender's rows have batch norm's own derivative; the borrower's add, with
    :math:`\rho = (\sigma^2 + c)^{-1/2}` and the sums of their own :math:`\bar\gamma` and
    :math:`\bar\beta`, :math:`\bar\mu = -\rho \gamma \bar\beta` and
    :math:`\bar{\sigma^2} = -\tfrac12 \rho^2 \gamma \bar\gamma` to the lender's.
    """

    @staticmethod
    def forward(
        ctx: Any, lent: Tensor, rest: Tensor, w: Tensor, b: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own, mean, rho, var = _batch_norm(lent, w, b, eps)
        other = torch.native_batch_norm(rest, w, b, mean, var, False, 0.0, eps)[0]
        ctx.save_for_backward(lent, rest, w, mean, rho, var)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, var)
        return own, other, mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_twice()
        lent, rest, w, mean, rho, var = ctx.saved_tensors
        back = torch.ops.aten.native_batch_norm_backward
        all_of = [True, True, True]
        dx, dw, db = back(grads[0], lent, w, None, None, mean, rho, True, ctx.eps, all_of)
        dy, ew, eb = back(grads[1], rest, w, mean, var, None, None, False, ctx.eps, all_of)
        m, shape = lent.numel() // lent.shape[1], (1, -1, *(1,) * (lent.ndim - 2))
        slope = -w * rho.square() * ew / m  # 2 / m times the gradient of the variance
        shift = -w * rho * eb / m - slope * mean
        dx.add_((lent * slope.view(shape)).add_(shift.view(shape)))
        return dx, dy, dw + ew, db + eb, None
