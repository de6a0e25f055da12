r"""Kernel of perturbed batch norm: forward and backward pass by hand (apart2022, Eq. 3).

In plain PyTorch operations, Eq. 3 would read and store several tensors of the size of the
feature map. Here it costs as much as batch norm and one addition. It can be differentiated
only once.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.norms.kernel_tools import refuse_second_derivative
from advnorm.norms.moments import Moments


class PerturbedOutput(NamedTuple):
    """The normalized values, and the batch moments before the shift (no gradient)."""

    value: Tensor
    moments: Moments


def perturbed_batch_norm(
    x: Tensor,
    affine: tuple[Tensor, Tensor],
    deltas: tuple[Tensor, Tensor],
    eps: float,
    *,
    at_zero: bool,
    detached: bool = False,
) -> PerturbedOutput:
    r"""Normalize ``(batch, features, ...)`` by its own, perturbed moments (Eq. 3).

    .. math::
        y = \gamma (1 + \delta_\sigma) \frac{x - (1 + \delta_\mu) \mu}{\sigma} + \beta
          = w \hat x + \beta - w \delta_\mu \mu / \sigma, \qquad
        w = \gamma (1 + \delta_\sigma)

    with :math:`\sigma^2` the biased variance and the constant c. ``affine`` are
    :math:`\gamma, \beta`, ``deltas`` are :math:`\delta_\mu, \delta_\sigma`; with
    ``at_zero`` they are known to be zero and only their gradients are needed. ``detached``
    takes :math:`\mu / \sigma` of the last term as a constant in the backward pass.
    """
    modes = (at_zero, detached and not at_zero)
    y, mean, var = _PerturbedBatchNorm.apply(x, *affine, *deltas, eps, *modes)  # type: ignore[no-untyped-call]
    return PerturbedOutput(y, Moments(mean, var, x.numel() // x.shape[1]))


class _PerturbedBatchNorm(torch.autograd.Function):
    r"""Eq. 3, with batch norm's own passes around the shifted mean.

    With :math:`s = \sum \bar y`, :math:`\bar w = \sum \bar y (x - \mu') / \sigma` and
    :math:`\mu' = (1 + \delta_\mu) \mu`, the gradient of :math:`m` values per feature is

    .. math::
        \bar x = \frac{w}{\sigma} \Bigl( \bar y - \frac{s}{m}
        - \frac{x - \mu'}{\sigma} \frac{\bar w}{m} \Bigr)
        - \frac{w \delta_\mu}{\sigma m} \Bigl( s + \frac{\mu}{\sigma} \bar w \Bigr)

    where the first term is what batch norm's backward pass computes of
    :math:`\mu', \sigma`. The statistics gradient is
    :math:`\bar \delta_\mu = -s w \mu / \sigma, \bar \delta_\sigma = \gamma \bar w`.

    Detached, :math:`\bar x` is that of batch norm without a shift, of the sum
    :math:`\bar w_0 = \bar w + \delta_\mu s \mu / \sigma` over unshifted values.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        of_mean: Tensor,
        of_deviation: Tensor,
        eps: float,
        at_zero: bool,
        detached: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        w = weight if at_zero else weight * (1 + of_deviation)
        mean, var = _measure(x, w)
        inverse = torch.rsqrt(var + eps)
        # A train-mode pass would measure the moments again; this one takes shifted ones.
        shifted = mean if at_zero else mean * (1 + of_mean)
        y, _, _ = torch.native_batch_norm(x, w, bias, shifted, var, False, 0.0, eps)
        ctx.save_for_backward(x, weight, w, of_mean, of_deviation, mean, inverse)
        ctx.eps, ctx.at_zero, ctx.detached = eps, at_zero, detached
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("perturbed batch", "leave out create_graph=True")
        x, weight, w, of_mean, of_deviation, mean, inverse = ctx.saved_tensors
        unshifted = ctx.at_zero or ctx.detached
        shifted = mean if unshifted else mean * (1 + of_mean)
        dx, dw, db = torch.ops.aten.native_batch_norm_backward(
            grads[0], x, w, None, None, shifted, inverse, True, ctx.eps, [True, True, True]
        )
        ratio = mean * inverse
        if ctx.detached:
            dw = dw - of_mean * ratio * db
        elif not ctx.at_zero:
            m = x.numel() // x.shape[1]
            dx.add_(_like(-w * inverse * of_mean * (db + ratio * dw) / m, x))
        return (
            dx,
            dw if ctx.at_zero else dw * (1 + of_deviation),
            db,
            -w * ratio * db,
            dw * weight,
            None,
            None,
            None,
        )


def _measure(x: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance, by the same reduction as batch norm."""
    if x.is_meta:  # meta tensors have no such kernel
        var, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
    else:
        mean, var = torch.ops.aten.batch_norm_update_stats(x, None, None, 0.0)
    return mean.to(like.dtype), var.to(like.dtype)


def _shape(x: Tensor) -> tuple[int, ...]:
    return (1, -1, *(1,) * (x.ndim - 2))


def _like(vector: Tensor, x: Tensor) -> Tensor:
    return vector.to(x.dtype).view(_shape(x))
