r"""Kernel of norms whose rows share one set of batch moments: borrowed and affine.

Forward and backward pass are one autograd function, which reads each feature map as often
as PyTorch's batch norm does. It can be differentiated only once: see
:func:`advnorm.norms.twice_differentiable`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.norms.kernel_tools import TWICE, refuse_second_derivative
from advnorm.norms.moments import Moments


class AffineRows(NamedTuple):
    """Rows of a batch, and the gamma and beta that scale and shift them."""

    rows: slice
    weight: Tensor
    bias: Tensor


def shared_moments_batch_norm(
    x: Tensor, source: slice, parts: Sequence[AffineRows], eps: float
) -> tuple[Tensor, Moments]:
    r"""Return :math:`\gamma_p (x - \mu) / \sqrt{\sigma^2 + c} + \beta_p`, and the moments.

    The moments are those of the rows ``source``; the gradients of all rows flow back to
    these rows through them. The parts are adjacent and cover the batch. The moments
    returned carry no gradient.
    """
    flat = x.reshape(*x.shape[:2], -1)
    rows, weights, biases = zip(*parts, strict=True)
    y, mean, var = _SharedMoments.apply(flat, source, rows, eps, *weights, *biases)  # type: ignore[no-untyped-call]
    return y.view(x.shape), Moments(mean, var, flat[source].numel() // x.shape[1])


class _SharedMoments(torch.autograd.Function):
    r"""Normalize all rows by the moments of the source rows.

    With :math:`\rho = (\sigma^2 + c)^{-1/2}`, the gradient :math:`h = \gamma_p g` of the
    normalized values, sums over *all* rows, and m values per feature in the source rows,

    .. math::
        \bar x = \rho \Big(h - \frac{[\text{source}]}{m} \Big(\sum h
            + \rho^2 (x - \mu) \sum h (x - \mu)\Big)\Big)
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: slice, rows: tuple[slice, ...], eps: float, *wb: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        source_rows = x[source]
        m = source_rows.shape[0] * source_rows.shape[2]
        mean = source_rows.sum((0, 2)) / m
        centred = source_rows - mean[:, None]
        var = centred.mul_(centred).sum((0, 2)) / m
        del centred
        pairs = zip(wb[: len(rows)], wb[len(rows) :], strict=True)
        outputs = [
            torch.native_batch_norm(x[part], w, b, mean, var, False, 0.0, eps)[0]
            for part, (w, b) in zip(rows, pairs, strict=True)
        ]
        ctx.save_for_backward(x, mean, var, *wb[: len(rows)])
        ctx.source, ctx.rows, ctx.eps = source, rows, eps
        ctx.mark_non_differentiable(mean, var)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs), mean, var

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Any, ...]:
        refuse_second_derivative("borrowed or affine", TWICE)
        x, mean, var, *weights = ctx.saved_tensors
        dxs, dws, dbs = zip(
            *(
                torch.ops.aten.native_batch_norm_backward(  # with the moments fixed
                    g[r], x[r], w, mean, var, None, None, False, ctx.eps, [True] * 3
                )
                for r, w in zip(ctx.rows, weights, strict=True)
            ),
            strict=True,
        )
        dx = dxs[0] if len(dxs) == 1 else torch.cat(dxs)
        source_rows, rho = x[ctx.source], torch.rsqrt(var + ctx.eps)
        m = source_rows.shape[0] * source_rows.shape[2]
        slope = -rho * rho * _weighted_sum(weights, dws) / m
        shift = -rho * _weighted_sum(weights, dbs) / m - slope * mean
        dx[ctx.source].add_((source_rows * slope[:, None]).add_(shift[:, None]))
        return dx, None, None, None, *dws, *dbs


def _weighted_sum(weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    return torch.stack([w * g for w, g in zip(weights, gradients, strict=True)]).sum(0)
