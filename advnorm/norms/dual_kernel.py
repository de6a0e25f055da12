r"""Kernel of dual batch norm: forward and backward pass by hand (sitawarin2021, F).

In plain PyTorch operations (:func:`reference_dual_batch_norm`) the gate would store and
read many tensors of the size of the feature map. This autograd function stores one of them
and reuses its buffers. It can be differentiated only once.

A position of a domain, :math:`x \in \mathbb{R}^C`, is :math:`u = (x - \mu_i) / \sigma_i` by
its own domain's moments and :math:`v = r u + s` by the other's, where
:math:`r = \sigma_i / \sigma_j` and :math:`s = (\mu_i - \mu_j) / \sigma_j`. Then

.. math::
    \ell = \sum_c \tfrac12 (v_c^2 - u_c^2) - \log r_c, \qquad
    p = \operatorname{sigmoid}(\ell), \qquad
    y = w \odot (v + p (u - v)) + b
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.norms.kernel_tools import TWICE, refuse_second_derivative
from advnorm.norms.moments import Moments, measure_moments
from advnorm.norms.standard import affine

Pair = tuple[Moments | None, Moments | None]


class DualOutput(NamedTuple):
    """The output, the log-odds of each position's own domain, and both moments."""

    output: Tensor
    odds: Tensor
    moments: tuple[Moments, Moments]


def dual_batch_norm(
    x: Tensor, clean: int, given: Pair, w: Tensor, b: Tensor, eps: float
) -> DualOutput:
    r"""Normalize each position by both moments, weighted by the posterior of each domain.

    Args:
        x: ``(batch, features, ...)``; the first ``clean`` rows are clean.
        clean: The number of clean rows.
        given: The moments of the clean and of the adversarial domain; ``None`` means those
            of its rows in ``x``, and gradients then flow through them too.
        w: The scale of each feature.
        b: The shift of each feature.
        eps: The constant c, part of each :math:`\sigma^2`.
    """
    flat = x.reshape(*x.shape[:2], -1)
    values = [part for m in given for part in ((None, None) if m is None else m[:2])]
    with _autocast_off(x):
        y, odds, *measured = _DualBatchNorm.apply(flat, w, b, *values, clean, eps)  # type: ignore[no-untyped-call]
    rows = (clean, len(x) - clean)
    moments = [
        Moments(measured[2 * i], measured[2 * i + 1], rows[i] * flat.shape[2])
        if m is None
        else m
        for i, m in enumerate(given)
    ]
    return DualOutput(y.view(x.shape), odds, (moments[0], moments[1]))


def reference_dual_batch_norm(
    x: Tensor, clean: int, given: Pair, w: Tensor, b: Tensor, eps: float
) -> DualOutput:
    """Compute :func:`dual_batch_norm` in plain PyTorch, differentiable many times."""
    flat = x.reshape(*x.shape[:2], -1)
    parts = torch.split(flat, [clean, len(x) - clean])
    moments = [m or measure_moments(part) for m, part in zip(given, parts, strict=True)]
    outputs, odds = [], []
    for own, other, part in zip(moments, moments[::-1], parts, strict=True):
        u, v = affine(part, own, eps, None, None), affine(part, other, eps, None, None)
        log_r = 0.5 * torch.log((own.var + eps) / (other.var + eps))
        odds.append((0.5 * (v * v - u * u) - log_r[:, None]).sum(1))
        p = torch.sigmoid(odds[-1])[:, None]
        outputs.append(w[:, None] * (v + p * (u - v)) + b[:, None])
    return DualOutput(
        torch.cat(outputs).view(x.shape), torch.cat(odds), (moments[0], moments[1])
    )


class _DualBatchNorm(torch.autograd.Function):
    """The equations at the top of this file; arguments as in :func:`dual_batch_norm`.

    Values per feature have the shape ``(2, features)``: clean, then adversarial.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, *args: Any) -> tuple[Any, ...]:
        *given, clean, eps = args
        parts = (slice(0, clean), slice(clean, len(x)))
        u, y = torch.empty_like(x), torch.empty_like(x)
        odds, p = x.new_empty(len(x), x.shape[2]), x.new_empty(len(x), 1, x.shape[2])
        moments = [
            _center(x[part], u[part], y[part], given[2 * i], given[2 * i + 1])
            for i, part in enumerate(parts)
        ]
        mean, var = (torch.stack(values) for values in zip(*moments, strict=True))
        own = torch.rsqrt(var + eps)
        other = own.flip(0)
        r, s = other / own, (mean - mean.flip(0)) * other
        vectors = _forward_vectors(r, s, w, b)
        for i, part in enumerate(parts):
            scaled = u[part].mul_(own[i][:, None])
            _mix(scaled, y[part], odds[part], p[part], [v[i] for v in vectors])
        ctx.save_for_backward(u, p, w, r, s, own)
        ctx.clean, ctx.measured = clean, (given[0] is None, given[2] is None)
        outputs = [
            value if measured else None
            for pair, measured in zip(moments, ctx.measured, strict=True)
            for value in pair
        ]
        ctx.mark_non_differentiable(*(value for value in outputs if value is not None))
        return y, odds, *outputs

    @staticmethod
    def backward(ctx: Any, of_y: Tensor, of_odds: Tensor, *_: Any) -> tuple[Any, ...]:
        refuse_second_derivative("dual", TWICE)
        with _autocast_off(of_y):
            return _backward(ctx, of_y, of_odds)


def _autocast_off(x: Tensor) -> AbstractContextManager[object]:
    """Keep the precision of the inputs inside autocast (which meta tensors do not have)."""
    kind = x.device.type
    if torch.amp.is_autocast_available(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def _center(
    x: Tensor, u: Tensor, buffer: Tensor, mean: Tensor | None, var: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Write the centred rows of a domain to ``u``; return its moments."""
    if mean is not None and var is not None:
        torch.sub(x, mean[:, None], out=u)
        return mean, var
    n = x.shape[0] * x.shape[2]
    mean = _sum(x) / n
    torch.sub(x, mean[:, None], out=u)
    return mean, _sum(torch.mul(u, u, out=buffer)) / n


def _forward_vectors(r: Tensor, s: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Return the coefficients of the odds and of the output, for both domains."""
    rs, wr, ws = r * s, w * r, w * s
    constant = (0.5 * s * s - r.log()).sum(1)
    return 0.5 * (r * r - 1), rs, constant, w - wr, wr, -ws, ws + b


def _mix(u: Tensor, y: Tensor, odds: Tensor, p: Tensor, vectors: list[Tensor]) -> None:
    """Write the output, the log-odds and the posterior of a domain's rows."""
    square, linear, constant, by_p, scale, shift_p, shift = vectors
    _affine(u, square, linear, out=y).mul_(u)  # not u * u first: it may overflow
    torch.sum(y, 1, out=odds).add_(constant)
    torch.sigmoid(odds[:, None], out=p)
    _affine(p, by_p, scale, out=y).mul_(u)
    y.addcmul_(p, shift_p[:, None]).add_(shift[:, None])


def _backward(ctx: Any, of_y: Tensor, of_odds: Tensor) -> tuple[Any, ...]:
    u, p, w, r, s, own = ctx.saved_tensors
    parts = (slice(0, ctx.clean), slice(ctx.clean, len(u)))
    wanted = any(ctx.needs_input_grad[1:7]) or any(ctx.measured)
    dx, sums = torch.empty_like(u), []
    buffer = u.new_empty(max(ctx.clean, len(u) - ctx.clean), *u.shape[1:])
    vectors = _backward_vectors(r, s, w, own)
    for i, part in enumerate(parts):
        rows = _Rows(*(t[part] for t in (of_y, u, p, of_odds, dx)))
        sums += [_slope(rows, buffer[: len(rows.g)], [v[i] for v in vectors], sums=wanted)]
    if not wanted:  # an attack: moments and weights are fixed
        return dx, *(None,) * 8
    dw, db, of_mean, of_var = _moment_gradients(r, s, w, own, sums)
    for i, part in enumerate(parts):
        if ctx.measured[i]:
            _add_moments(u[part], dx[part], own[i], of_mean[i], of_var[i])
    given = [
        None if measured else of[i]
        for i, measured in enumerate(ctx.measured)
        for of in (of_mean, of_var)
    ]
    return dx, dw, db, *given, None, None


def _backward_vectors(r: Tensor, s: Tensor, w: Tensor, own: Tensor) -> tuple[Tensor, ...]:
    """Return the coefficients of the gradients of p and x, for both domains."""
    wr, rs = w * r, r * s
    by_p = w - wr
    return by_p, w * s, own * by_p, own * wr, own * (r * r - 1), own * rs


class _Rows(NamedTuple):
    """The rows of a domain: gradient of y, u, p, gradient of the odds, gradient of x."""

    g: Tensor
    u: Tensor
    p: Tensor
    of_odds: Tensor
    dx: Tensor


def _slope(
    rows: _Rows, buffer: Tensor, vectors: list[Tensor], *, sums: bool
) -> tuple[Tensor, ...]:
    """Write the gradient of a domain's rows at fixed moments; return sums per feature.

    They are those of g, pg, gu, pgu, lu, luu and l, with l the gradient of the odds.
    """
    g, u, p, of_odds, dx = rows
    by_p, ws, own_by_p, own_wr, square, linear = vectors
    gu = torch.mul(g, u, out=buffer)
    of_p = torch.matmul(by_p, gu).sub_(torch.matmul(ws, g))
    slope = of_p[:, None].mul_(p - p * p).add_(of_odds[:, None])
    _affine(p, own_by_p, own_wr, out=dx).mul_(g)
    of_g = (_sum(g), _weighted_sum(g, p), _sum(gu), _weighted_sum(gu, p)) if sums else ()
    lu = torch.mul(u, slope, out=buffer)
    dx.addcmul_(lu, square[:, None]).addcmul_(slope, linear[:, None])
    if not sums:
        return ()
    return *of_g, _sum(lu), _sum(lu.mul_(u)), slope.sum().expand_as(square)


def _moment_gradients(
    r: Tensor, s: Tensor, w: Tensor, own: Tensor, sums: list[tuple[Tensor, ...]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Return the gradients of w and b, and of each domain's mean and variance.

    A moment acts on its own rows through :math:`u`, and on all rows through r and s.
    """
    g1, gp, gu1, gup, lu, luu, total = (
        torch.stack(pair) for pair in zip(*sums, strict=True)
    )
    other, other_u, q, t = g1 - gp, gu1 - gup, r * r - 1, r * s
    of_r = w * other_u + r * luu + s * lu - total / r
    of_s = w * other + r * lu + s * total
    of_u = w * (r * other + gp) + q * lu + t * total
    of_uu = w * (r * other_u + gup) + q * luu + t * lu
    dw = r * other_u + gup + s * other
    of_mean = own.flip(0) * of_s - own * (of_s.flip(0) + of_u)
    crossed = (r * of_r + s * of_s).flip(0)
    of_sigma = own.flip(0) * of_r - own * (crossed + of_uu)
    return dw.sum(0), g1.sum(0), of_mean, 0.5 * of_sigma * own


def _add_moments(
    u: Tensor, dx: Tensor, own: Tensor, of_mean: Tensor, of_var: Tensor
) -> None:
    r"""Add :math:`\bar\mu / m + 2 \bar{\sigma^2} (x - \mu) / m` to the gradient."""
    m = u.shape[0] * u.shape[2]
    dx.addcmul_(u, (2 * of_var / (m * own))[:, None]).add_((of_mean / m)[:, None])


def _affine(x: Tensor, scale: Tensor, shift: Tensor, *, out: Tensor) -> Tensor:
    """Write ``scale * x + shift`` per feature: two fast passes beat one slow pass."""
    return torch.mul(x, scale[:, None], out=out).add_(shift[:, None])


def _sum(x: Tensor) -> Tensor:
    """Return each feature's sum."""
    return x.sum((0, 2))


def _weighted_sum(x: Tensor, weight: Tensor) -> Tensor:
    """Return each feature's sum of ``x``, weighted by position."""
    return torch.matmul(weight, x.transpose(1, 2)).sum(0)[0]
