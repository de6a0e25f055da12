r"""ReLU and batch norm of boxes with their derivatives by hand: the two of every network.

Written out in PyTorch operations each would read and keep many tensors of the size of the
feature map, and certified training would spend as much time there as in its convolutions.
The derivatives are PyTorch operations themselves, so that both can be differentiated twice.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from advnorm.bounds.box import Box
from advnorm.norms.moments import Moments


class NormalizedBox(NamedTuple):
    """Clean rows and centres, radii, and the clean rows' moments (no gradient)."""

    lead: Tensor
    radius: Tensor
    moments: Moments


def relu(box: Box) -> Box:
    """Return the box of ReLU."""
    if not torch.is_grad_enabled() and box.copies == 1:
        return _relu(box.lead, box.radius)
    lead, radius = _ReLU.apply(box.lead, box.radius)  # type: ignore[no-untyped-call]
    return Box(lead, radius)


def _relu(centre: Tensor, radius: Tensor) -> Box:
    r"""Do the same where there are no clean rows and no gradient is asked for.

    .. math:: r' = \max\bigl(\tfrac12 (\min(m, r) + r), 0\bigr), \qquad m' = \max(m, r')

    always on (:math:`m \ge r`) that is m and r, always off zero, else both half of m + r.
    """
    radius_after = torch.minimum(centre, radius)
    torch.lerp(radius_after, radius, 0.5, out=radius_after).clamp_(min=0)
    return Box(torch.maximum(centre, radius_after), radius_after)


def normalize(box: Box, weight: Tensor, bias: Tensor, eps: float) -> NormalizedBox:
    """Normalize clean rows, centres and radii by the moments of the clean rows."""
    lead, radius, mean, var = _Norm.apply(  # type: ignore[no-untyped-call]
        box.lead, box.radius, weight, bias, eps
    )
    return NormalizedBox(lead, radius, Moments(mean, var, box.radius.numel() // len(mean)))


class _ReLU(torch.autograd.Function):
    r"""Map clean rows, centres and radii through ReLU.

    With :math:`l = \max(m - r, 0)` and :math:`u = \max(m + r, 0)`: :math:`m' = (l + u) / 2`
    and :math:`r' = (u - l) / 2`. So u gets :math:`(\bar m' + \bar r') / 2` and l gets
    :math:`(\bar m' - \bar r') / 2`, each where it is positive; the centre gets their sum
    and the radius what u gets less what l gets.
    """

    @staticmethod
    def forward(ctx: Any, lead: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(radius)
        clean, centre = lead[:-rows], lead[-rows:]
        lower, upper = (centre - radius).clamp_(min=0), (centre + radius).clamp_(min=0)
        output = torch.empty_like(lead)
        torch.clamp(clean, min=0, out=output[:-rows])
        torch.lerp(lower, upper, 0.5, out=output[-rows:])
        ctx.save_for_backward(output, lower, upper)
        return output, output[-rows:] - lower

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        output, lower, upper = ctx.saved_tensors
        of_lead, of_radius = grads
        rows = len(lower)
        of_clean, of_centre = of_lead[:-rows], of_lead[-rows:]
        up = torch.lerp(of_centre, of_radius, 0.5)
        if torch.is_grad_enabled():
            down = _where_positive(of_centre - up, lower)
            up = _where_positive(up, upper)
            parts = _where_positive(of_clean, output[:-rows])
            return torch.cat([parts, up + down]), up - down
        lead, down = torch.empty_like(of_lead), of_centre - up  # the same, without copies
        pass_positive = torch.ops.aten.threshold_backward.grad_input
        pass_positive(of_clean, output[:-rows], 0, grad_input=lead[:-rows])
        pass_positive(up, upper, 0, grad_input=up)
        pass_positive(down, lower, 0, grad_input=down)
        torch.add(up, down, out=lead[-rows:])
        return lead, up.sub_(down)


class _Norm(torch.autograd.Function):
    r"""Normalize clean rows, centres and radii by the clean rows' moments (Alg. 1).

    With :math:`i = (\sigma^2 + c)^{-1/2}`, :math:`z' = \gamma i (z - \mu) + \beta` of clean
    rows and centres, and :math:`r' = |\gamma| i r`. What the gradients of all three send to
    :math:`\mu` and :math:`\sigma^2` goes back to the clean rows, n values per feature:

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
        mean, var = _moments(lead[: len(radius)])
        output = torch.nn.functional.batch_norm(lead, mean, var, weight, bias, eps=eps)
        factor, shape = weight * torch.rsqrt(var + eps), _shape(lead)
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
        along, sums = _sums(of_lead, lead, mean, inverse)
        beside = (of_radius * radius).sum(places)
        slope = -(inverse**2) * (factor * along + factor.abs() * beside)
        count = lead[:rows].numel() // lead.shape[1]
        slope, level = slope / count, -factor * sums / count
        back = of_lead * factor.view(shape)
        more = (level - slope * mean).view(shape)
        back[:rows].add_(torch.addcmul(more, lead[:rows], slope.view(shape)))
        of_weight = inverse * (along + weight.sign() * beside)
        return back, of_radius * factor.abs().view(shape), of_weight, sums, None


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance; batch norm's own kernel is faster on a CPU."""
    if x.device.type != "cpu":
        var, mean = torch.var_mean(x, _places(x), correction=0)
        return mean, var
    room = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
    mean, var = torch.ops.aten.batch_norm_update_stats(x, *room, 0.0)
    return mean, var


def _sums(grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums over a feature of grad (x - mean) and of grad."""
    if torch.is_grad_enabled():
        total = grad.sum(_places(x))
        return (grad * x).sum(_places(x)) - mean * total, total
    _, along, total = torch.ops.aten.native_batch_norm_backward(
        grad, x, inverse, None, None, mean, inverse, True, 0.0, [False, True, True]
    )
    return along / inverse, total


def _where_positive(grad: Tensor, value: Tensor) -> Tensor:
    passed: Tensor = torch.ops.aten.threshold_backward(grad, value, 0)
    return passed


def _places(x: Tensor) -> list[int]:
    return [0, *range(2, x.ndim)]


def _shape(x: Tensor) -> tuple[int, ...]:
    return (1, -1, *(1,) * (x.ndim - 2))
