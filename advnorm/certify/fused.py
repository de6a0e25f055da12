r"""ReLU and batch norm of boxes with their derivatives by hand: the two of every network.

Written out in PyTorch operations each would read and keep many tensors of the size of the
feature map, and certified training would spend as much time there as in its convolutions.
The derivatives are PyTorch operations themselves, so that both can be differentiated twice.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.certify.box import Box
from advnorm.norms.moments import Moments


class Normalized(NamedTuple):
    """Clean rows and centres, radii, and the clean rows' moments (no gradient)."""

    lead: Tensor
    radius: Tensor
    moments: Moments


def relu(box: Box) -> Box:
    """Return the box of ReLU."""
    lead, radius = _ReLU.apply(box.lead, box.radius)  # type: ignore[no-untyped-call]
    return Box(lead, radius)


def normalize(box: Box, weight: Tensor, bias: Tensor, eps: float) -> Normalized:
    """Normalize clean rows, centres and radii by the moments of the clean rows."""
    found = _Norm.apply(box.lead, box.radius, weight, bias, eps)  # type: ignore[no-untyped-call]
    lead, radius, mean, var = found
    return Normalized(lead, radius, Moments(mean, var, box.radius.numel() // len(mean)))


class _ReLU(torch.autograd.Function):
    r"""Map clean rows, centres and radii through ReLU.

    With :math:`l = m - r`, :math:`u = m + r`, :math:`a = 1[l > 0]` and
    :math:`c = 1[l \le 0 < u]`: :math:`m' = a m + c u / 2` and :math:`r' = a r + c u / 2`.
    """

    @staticmethod
    def forward(ctx: Any, lead: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(radius)
        clean, centre = lead[:-rows], lead[-rows:]
        lower, upper = (centre - radius).clamp_(min=0), (centre + radius).clamp_(min=0)
        active, output = torch.empty_like(lead), torch.empty_like(lead)
        torch.clamp(clean, min=0, out=output[:-rows])
        torch.add(upper, lower, out=output[-rows:]).mul_(0.5)
        spread = (upper - lower).mul_(0.5)
        torch.sign(output[:-rows], out=active[:-rows])
        torch.sign(lower, out=active[-rows:])
        crossing = upper.sign_().sub_(active[-rows:]).mul_(0.5)
        ctx.save_for_backward(active, crossing)
        return output, spread

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        active, crossing = ctx.saved_tensors
        of_lead, of_radius = grads
        rows = len(crossing)
        shared = (of_lead[-rows:] + of_radius) * crossing
        lead = of_lead * active
        lead[-rows:] += shared
        return lead, torch.addcmul(shared, of_radius, active[-rows:])


class _Norm(torch.autograd.Function):
    r"""Normalize clean rows, centres and radii by the clean rows' moments (Alg. 1).

    With :math:`i = (\sigma^2 + c)^{-1/2}`, :math:`z' = \gamma i (z - \mu) + \beta` of clean
    rows and centres, and :math:`r' = |\gamma| i r`. What the gradients of all three send to
    :math:`\mu` and :math:`\sigma^2` goes back to the clean rows, n values a feature:

    .. math::
        \bar\mu = -\gamma i \sum \bar z', \qquad
        \bar{\sigma^2} = -\tfrac{i^2}{2} \bigl(\sum \bar z' (z' - \beta)
        + \sum \bar r' r'\bigr), \qquad
        \bar z \mathrel{+}= \frac{\bar\mu}{n} + \frac{2 \bar{\sigma^2}}{n} (z - \mu)
    """

    @staticmethod
    def forward(
        ctx: Any, lead: Tensor, radius: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        clean = lead[: len(radius)]
        var, mean = torch.var_mean(clean, _places(clean), correction=0)
        inverse = torch.rsqrt(var + eps)
        factor = weight * inverse
        shape = _shape(lead)
        output = torch.addcmul((bias - mean * factor).view(shape), lead, factor.view(shape))
        ctx.save_for_backward(lead, radius, weight, mean, var)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, var)
        return output, radius * factor.abs().view(shape), mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        lead, radius, weight, mean, var = ctx.saved_tensors
        of_lead, of_radius = grads[:2]
        rows, places, shape = len(radius), _places(lead), _shape(lead)
        if torch.is_grad_enabled():  # twice: the moments have a gradient of their own
            var, mean = torch.var_mean(lead[:rows], places, correction=0)
        inverse = torch.rsqrt(var + ctx.eps)
        factor = weight * inverse
        sums = of_lead.sum(places)
        # sum of z' (z - mean), without a map of z - mean
        along = (of_lead * lead).sum(places) - mean * sums
        beside = (of_radius * radius).sum(places)
        slope = -(inverse**2) * (factor * along + factor.abs() * beside)
        count = lead[:rows].numel() // lead.shape[1]
        slope, level = slope / count, -factor * sums / count
        back = of_lead * factor.view(shape)
        back[:rows] += torch.addcmul(
            (level - slope * mean).view(shape), lead[:rows], slope.view(shape)
        )
        of_weight = inverse * (along + weight.sign() * beside)
        return back, of_radius * factor.abs().view(shape), of_weight, sums, None


def _places(x: Tensor) -> list[int]:
    return [0, *range(2, x.ndim)]


def _shape(x: Tensor) -> tuple[int, ...]:
    return (1, -1, *(1,) * (x.ndim - 2))
