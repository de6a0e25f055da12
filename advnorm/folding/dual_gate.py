r"""The gate of a dual norm with fixed statistics: what can be computed once is.

With :math:`a = 1 / \sigma_{cl}`, :math:`s = -\mu_{cl} a`, and :math:`b, t` of the other
domain, a position :math:`x \in \mathbb{R}^C` of either domain has the log-odds

.. math::
    \ell = \sum_c \bigl(\tfrac12 (b_c^2 - a_c^2) x_c + (b_c t_c - a_c s_c)\bigr) x_c + k,
    \qquad k = \sum_c \tfrac12 (t_c^2 - s_c^2) + \log (a_c / b_c)

and with :math:`p = \operatorname{sigmoid}(\ell)` the output

.. math::
    y = \bigl(w b + p \, w (a - b)\bigr) x + p \, w (s - t) + w t + \beta
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from advnorm.folding.feature_maps import Constants, map_of_norm
from advnorm.folding.steps import Bound, Layout
from advnorm.norms import DualNorm


class Gate(NamedTuple):
    """The coefficients above, shaped to broadcast over ``(batch, features, ...)``."""

    square: Tensor
    linear: Tensor
    constant: Tensor
    scale: Tensor
    scale_by_p: Tensor
    shift: Tensor
    shift_by_p: Tensor


def gate_of(layer: DualNorm, dims: int) -> Gate:
    """Compute the coefficients in double precision."""
    a, s = map_of_norm(layer.clean, {})
    b, t = map_of_norm(layer.adversarial, {})
    w = torch.ones_like(a) if layer.weight is None else layer.weight.detach().double()
    bias = torch.zeros_like(a) if layer.bias is None else layer.bias.detach().double()
    values = (
        (b * b - a * a) / 2,
        b * t - a * s,
        ((t * t - s * s) / 2 + (a / b).log()).sum().view(1),
        w * b,
        w * (a - b),
        w * t + bias,
        w * (s - t),
    )
    return Gate(*(v.view(1, -1, *(1,) * (dims - 2)) for v in values))


@dataclass
class DualStep:
    """A dual norm with the running statistics of both domains."""

    layer: DualNorm
    inputs: tuple[int, ...]
    dims: int

    def bind(self, layout: Layout, constants: Constants) -> Bound:
        """Compute the coefficients; the gate is in single precision or wider."""
        kind = layout.dtype
        wide = torch.float32 if kind == torch.bfloat16 else kind
        gate = [value.to(wide) for value in gate_of(self.layer, self.dims)]
        return lambda x: _Gated.apply(x.to(wide), *gate).to(kind)  # type: ignore[no-untyped-call]


class _Gated(torch.autograd.Function):
    r"""The equations at the top of this file, with buffers that are used again.

    With the gradient g of y and :math:`r = p (1 - p) \sum_c g_c w_c ((a - b)_c x_c +
    (s - t)_c)`, the gradient of x is :math:`(w b + p \, w (a - b)) g + r \,
    \partial \ell / \partial x`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *values: Tensor) -> Tensor:
        gate = Gate(*values)
        buffer = torch.addcmul(gate.linear, x, gate.square).mul_(x)
        p = torch.sigmoid(buffer.sum(1, keepdim=True).add_(gate.constant))
        y = torch.addcmul(gate.scale, p, gate.scale_by_p, out=buffer).mul_(x)
        ctx.save_for_backward(x, p, *values)
        return y.addcmul_(p, gate.shift_by_p).add_(gate.shift)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Any, ...]:
        x, p, *values = ctx.saved_tensors
        gate = Gate(*values)
        buffer = torch.addcmul(gate.shift_by_p, x, gate.scale_by_p).mul_(of_y)
        slope = buffer.sum(1, keepdim=True).mul_(p - p * p)
        of_x = torch.addcmul(gate.scale, p, gate.scale_by_p, out=buffer).mul_(of_y)
        of_x.addcmul_(slope, torch.addcmul(gate.linear, x, 2 * gate.square))
        return of_x, *(None,) * len(values)
