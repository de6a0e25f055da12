r"""The inner loop of perturbed batch norm, with its derivatives by hand (apart2022, Eq. 3).

As PyTorch operations, Eq. 3 would read and keep several tensors of the size of the feature
map. Here it costs what batch norm does, and a shift. It cannot be differentiated twice.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.norms.moments import Moments, single


class Shifted(NamedTuple):
    """Values normalized by shifted batch moments, and the moments (no gradient)."""

    value: Tensor
    moments: Moments


def shifted(
    x: Tensor,
    affine: tuple[Tensor, Tensor],
    deltas: tuple[Tensor, Tensor],
    eps: float,
    *,
    at_zero: bool,
) -> Shifted:
    r"""Normalize ``(batch, features, ...)`` by its own moments, shifted (Eq. 3).

    .. math::
        y = \gamma (1 + \delta_\sigma) \frac{x - (1 + \delta_\mu) \mu}{\sigma} + \beta
          = w \hat x + \beta - w \delta_\mu \mu / \sigma, \qquad
        w = \gamma (1 + \delta_\sigma)

    with :math:`\sigma^2` the biased variance and the constant c. ``affine`` are
    :math:`\gamma, \beta`, ``deltas`` are :math:`\delta_\mu, \delta_\sigma`; with
    ``at_zero`` they are known to be zero and only their gradients are wanted.
    """
    y, mean, var = _Shifted.apply(x, *affine, *deltas, eps, at_zero)  # type: ignore[no-untyped-call]
    return Shifted(y, Moments(mean, var, x.numel() // x.shape[1]))


class _Shifted(torch.autograd.Function):
    r"""Eq. 3 as batch norm of scale :math:`w` and a shift of each feature.

    With :math:`s = \sum \bar y`, the gradient of the shift, and :math:`m` values a feature,
    what is added to batch norm's own gradients is

    .. math::
        \bar \mu = -s w \delta_\mu / \sigma, \quad
        \bar{\sigma^2} = \tfrac12 s w \delta_\mu \mu / \sigma^3, \quad
        \bar x \mathrel{+}= \frac{\bar \mu + 2 \bar{\sigma^2} (x - \mu)}{m}, \quad
        \bar w \mathrel{-}= s \delta_\mu \mu / \sigma

    and the statistics gradient is :math:`\bar \delta_\mu = -s w \mu / \sigma`,
    :math:`\bar \delta_\sigma = \gamma \bar w`.
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
    ) -> tuple[Tensor, Tensor, Tensor]:
        w = weight if at_zero else weight * (1 + of_deviation)
        n, mean, var = x.numel() // x.shape[1], torch.zeros_like(w), torch.zeros_like(w)
        # With a momentum of 1 the running statistics are the batch's own, as measured.
        y, _, inverse = torch.native_batch_norm(x, w, bias, mean, var, True, 1.0, eps)
        inverse = inverse.to(w.dtype)
        if not at_zero:
            y.add_((-w * of_mean * mean * inverse).view(_shape(x)))
        ctx.save_for_backward(x, weight, w, of_mean, of_deviation, mean, inverse)
        ctx.eps, ctx.at_zero = eps, at_zero
        moments = mean, var * ((n - 1) / n)
        ctx.mark_non_differentiable(*moments)
        return y, *moments

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "perturbed batch norm cannot be differentiated twice: leave out "
                "create_graph=True"
            )
        x, weight, w, of_mean, of_deviation, mean, inverse = ctx.saved_tensors
        dx, dw, db = torch.ops.aten.native_batch_norm_backward(
            grads[0], x, w, None, None, mean, inverse, True, ctx.eps, [True, True, True]
        )
        ratio = mean * inverse
        if not ctx.at_zero:
            m, common = x.numel() // x.shape[1], -db * of_mean
            slope = -common * w * mean * inverse.pow(3) / m
            level = common * w * inverse / m - slope * mean
            dw = dw + common * ratio
            dx.addcmul_(x, _like(slope, x)).add_(_like(level, x))
        return (
            dx,
            dw if ctx.at_zero else dw * (1 + of_deviation),
            db,
            -w * ratio * db,
            dw * weight,
            None,
            None,
        )


def _shape(x: Tensor) -> tuple[int, ...]:
    return (1, -1, *(1,) * (x.ndim - 2))


def _like(vector: Tensor, x: Tensor) -> Tensor:
    return vector.to(x.dtype).view(_shape(x))


def unit_affine(
    weight: Tensor | None, bias: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gamma and beta in single precision or wider; 1 and 0 where there are none."""
    w = torch.ones_like(like) if weight is None else single(weight)
    return w, torch.zeros_like(like) if bias is None else single(bias)
