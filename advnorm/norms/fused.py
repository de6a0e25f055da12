r"""The two inner loops of domain-aware norms, with their derivatives by hand.

Written out in PyTorch operations, both would keep and read many tensors of the size of the
feature map. As functions with their own backward pass they keep two and read each a few
times. Neither can be differentiated twice.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.norms.moments import Moments, measure, ranks


class Standardized(NamedTuple):
    """Values normalized by moments, and the moments."""

    value: Tensor
    moments: Moments


def standardize(x: Tensor, eps: float, *, sync: bool = False) -> Standardized:
    """Normalize ``(batch, features, ...)`` by its own batch moments, with gradients."""
    n = x.numel() // max(x.shape[1], 1)
    if n <= 1 or (sync and ranks() > 1):
        moments = measure(x, sync=sync)
        shape = (1, -1, *(1,) * (x.ndim - 2))
        scale = torch.rsqrt(moments.var + eps).view(shape)
        return Standardized((x - moments.mean.view(shape)) * scale, moments)
    value, mean, var = _Standardize.apply(x, eps)  # type: ignore[no-untyped-call]
    return Standardized(value, Moments(mean, var, n))


def gate(
    u: Tensor, r: Tensor, s: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Mix a value and its counterpart by the posterior of its own domain.

    For a position of a domain, :math:`u \in \mathbb{R}^C` is normalized by its own
    domain's moments and :math:`v = r u + s` by the other's, where
    :math:`r = \sigma_{own} / \sigma_{other}` and
    :math:`s = (\mu_{own} - \mu_{other}) / \sigma_{other}`. Then

    .. math::
        \ell = \sum_j \tfrac12 (v_j^2 - u_j^2) - \log r_j, \qquad
        p = \operatorname{sigmoid}(\ell), \qquad
        y = w \odot (v + p (u - v)) + b

    Returns :math:`y` and the log-odds :math:`\ell` of the own domain, ``(batch, places)``.
    """
    with torch.autocast(u.device.type, enabled=False):
        output, odds = _Gate.apply(u, r, s, weight, bias)  # type: ignore[no-untyped-call]
    return output.view(u.shape), odds  # here, so that it may be changed in place


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


def _refuse_twice() -> None:
    """Refuse a second derivative: these functions have none, and it would be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "dual and borrowed norms cannot be differentiated twice: leave out "
            "create_graph=True, or use the batch or mixture norm"
        )


class _Standardize(torch.autograd.Function):
    r"""Return :math:`u = (x - \mu) / \sqrt{\sigma^2 + c}`, :math:`\mu, \sigma^2`.

    The moments are those of ``x`` itself and are outputs too: whatever else is computed
    from them sends its gradient back to ``x``. With :math:`m` values a feature,

    .. math::
        \frac{\partial L}{\partial x} = \mathrm{BN}'(\bar u) + \frac{\bar \mu}{m}
        + \frac{2 \bar{\sigma^2}}{m} (x - \mu)
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        u, mean, inverse, var = _batch_norm(x, None, None, eps)
        ctx.save_for_backward(x, u, mean, inverse)
        ctx.eps = eps
        return u, mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        _refuse_twice()
        x, u, mean, inverse = ctx.saved_tensors
        of_u, of_mean, of_var = grads
        dx: Tensor = torch.ops.aten.native_batch_norm_backward(
            of_u, x, None, None, None, mean, inverse, True, ctx.eps, [True, False, False]
        )[0]
        m, shape = x.numel() // x.shape[1], (1, -1, *(1,) * (x.ndim - 2))
        slope = of_var * 2 / (m * inverse)  # x - mean is u / inverse
        dx.add_((u * slope.view(shape)).add_((of_mean / m).view(shape)))
        return dx, None


class _Gate(torch.autograd.Function):
    """See :func:`gate`."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, r: Tensor, s: Tensor, w: Tensor, b: Tensor
    ) -> tuple[Tensor, Tensor]:
        flat = u.flatten(2) if u.ndim > 2 else u[..., None]
        room = flat.square()
        odds = torch.matmul(0.5 * (r * r - 1), room)
        odds += torch.matmul(r * s, flat)
        odds += (0.5 * s * s - r.log()).sum()
        p = torch.sigmoid(odds)[:, None]
        y = _affine(flat, w * r, w * s + b)  # w v + b
        y.addcmul_(p, _affine(flat, w * (1 - r), -w * s, out=room))  # p w (u - v)
        ctx.save_for_backward(flat, p, r, s, w)
        ctx.shape = u.shape
        return y, odds

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_twice()
        with torch.autocast(grads[0].device.type, enabled=False):
            return _gate_backward(ctx, *grads)


def _gate_backward(ctx: Any, of_y: Tensor, of_l: Tensor) -> tuple[Tensor | None, ...]:
    u, p, r, s, w = ctx.saved_tensors
    g = of_y.reshape(u.shape)
    gu = g * u
    of_p = torch.matmul(w * (1 - r), gu) - torch.matmul(w * s, g)
    of_odds = of_p[:, None] * p * (1 - p) + of_l[:, None]

    du = _affine(p, w * (1 - r), w * r).mul_(g)
    sums = _gate_sums(g, gu, u, p, of_odds) if any(ctx.needs_input_grad[1:]) else None
    du.addcmul_(of_odds, _affine(u, r * r - 1, r * s, out=gu))  # the slope of the odds
    if sums is None:  # an attack: moments and weights are fixed
        return du.view(ctx.shape), None, None, None, None
    g1, gp, gu1, gup, lu, luu, total = sums
    dr = w * (gu1 - gup) + r * luu + s * lu - total / r
    ds = w * (g1 - gp) + r * lu + s * total
    dw = r * gu1 + s * g1 + (1 - r) * gup - s * gp
    return du.view(ctx.shape), dr, ds, dw, g1


def _gate_sums(
    g: Tensor, gu: Tensor, u: Tensor, p: Tensor, of_odds: Tensor
) -> tuple[Tensor, ...]:
    """Return each feature's sums of g, pg, gu, pgu, lu and luu, and that of l; uses up gu.

    Big tensors are costly to make: what is no longer needed is written over.
    """
    both = torch.cat([torch.ones_like(p), p], 1)
    g1, gp = _sums(g, both)
    gu1, gup = _sums(gu, both)
    (lu,) = _sums(u, of_odds)
    (luu,) = _sums(torch.mul(u, u, out=gu), of_odds)
    return g1, gp, gu1, gup, lu, luu, of_odds.sum()


def _affine(
    x: Tensor, scale: Tensor, shift: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """Return ``scale x + shift``, a feature at a time: two fast passes, not a slow one."""
    return torch.mul(x, scale[:, None], out=out).add_(shift[:, None])


def _sums(x: Tensor, weights: Tensor) -> Tensor:
    """Return each feature's sum of ``x`` under each weight, ``(weights, features)``."""
    return torch.matmul(x, weights.transpose(1, 2)).sum(0).T


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
        _refuse_twice()
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
