r"""Sigma-zero: a minimum-norm attack in L0 (Cinà et al., 2024, arXiv:2402.01879).

Gradient descent on a smooth stand-in for the number of changed features (Algorithm 1):

.. math::
    \min_\delta \; \max\bigl(f_y(x + \delta) - \max_{k \ne y} f_k(x + \delta), 0\bigr)
    + \frac{1}{d} \sum_i \frac{\delta_i^2}{\delta_i^2 + \sigma}

by Adam, with the gradient scaled to a largest entry of 1, and steps :math:`\eta_k` from 1
to 0.1 along half a cosine. After each step the change is clipped to the box, and entries
below a threshold :math:`\tau` become 0; it rises by :math:`0.01 \eta_k` where the image is
misclassified, and falls by that elsewhere.

Before the descent the features that matter most to the linearized model are moved to the
end of the box, the fewest that suffice: for a linear model this is the solution. Changes
are measured in units of the range of a pixel.
"""

from functools import partial
from math import cos, pi
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.minimum_norm import (
    MinimumNormProblem,
    NearestAdversarial,
    column,
    refuse_other_norm,
    search_nearest,
)
from advnorm.attacks.targets import LogitsFn
from advnorm.draws import Draws
from advnorm.threat import Threat

_SIGMA, _THRESHOLD, _RISE = 1e-3, 0.3, 0.01  # as published
_ETA, _BETAS = (1.0, 0.1), (0.9, 0.999)


def sigma_zero(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 1000,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sigma-zero: minimum-norm L0 attack (Cinà et al., 2024).

    An image is finished once an adversarial image inside the ball is known. The arguments
    are those of :func:`advnorm.attacks.fmn.fmn`; the threat is an L0 ball.
    """
    nearest = sigma_zero_nearest(
        logits_fn, clean, labels, threat, steps=steps, enough=threat.eps
    )
    return nearest.inside(clean.detach(), threat)


def sigma_zero_nearest(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 1000,
    enough: float = 0.0,
) -> NearestAdversarial:
    """Return the nearest adversarial inputs; of the threat, norm and bounds count."""
    refuse_other_norm(threat, "l0", "sigma_zero minimizes the number of changed features")
    descend = partial(_descend, steps=steps)
    return search_nearest(logits_fn, clean, labels, threat, descend, enough=enough)


class _SigmaZeroState(NamedTuple):
    """The samples that are still attacked; row i is one sample."""

    rows: Tensor
    clean: Tensor
    labels: Tensor
    change: Tensor
    mean: Tensor  # Adam's moments of the gradient
    square: Tensor
    threshold: Tensor
    targets: Tensor

    def keep(self, rows: Tensor) -> "_SigmaZeroState":
        return _SigmaZeroState(*(value[rows] for value in self))


def _descend(
    problem: MinimumNormProblem,
    clean: Tensor,
    labels: Tensor,
    targets: Tensor | None,
    *,
    steps: int,
) -> NearestAdversarial:
    """Run Algorithm 1 on correctly classified images."""
    threat, (low, high) = problem.threat, problem.threat.bounds
    best = NearestAdversarial.unknown(clean)
    extent, zeros = high - low, torch.zeros_like(clean)
    s = _SigmaZeroState(
        rows=torch.arange(len(clean), device=clean.device),
        clean=clean,
        labels=labels,
        change=zeros,
        mean=zeros,
        square=zeros,
        threshold=torch.full_like(best.distances, _THRESHOLD),
        targets=labels if targets is None else targets,
    )
    for k in range(steps):
        x = (s.clean + extent * s.change).clamp_(low, high)
        lead, grad, wrong = problem.slope(
            x, s.labels, None if targets is None else s.targets
        )
        best.keep(s.rows, x, threat.distance(x, s.clean), wrong)
        left = best.unfinished(s.rows, problem.enough)
        if len(left) < len(s.rows):
            s, grad, lead, wrong = s.keep(left), grad[left], lead[left], wrong[left]
        if not len(left):
            break
        s = _step(s, _descent_direction(s, grad * extent, lead), wrong, k, steps)
        ends = ((edge - s.clean) / extent for edge in (low, high))
        change = torch.clamp(s.change, *ends)
        small = change.abs() < column(s.threshold, change)
        s = s._replace(change=change.masked_fill(small, 0))
    return best


def _descent_direction(s: _SigmaZeroState, grad: Tensor, lead: Tensor) -> Tensor:
    """Return the gradient of the objective, its largest entry scaled to 1."""
    size = s.change[0].numel()
    sparse = 2 * s.change * _SIGMA / (s.change.square() + _SIGMA).square() / size
    total = sparse - grad * column(lead < 0, grad)
    largest = total.flatten(1).abs().amax(1).clamp(min=1e-12)
    return total / column(largest, total)


def _step(
    s: _SigmaZeroState, grad: Tensor, wrong: Tensor, k: int, steps: int
) -> _SigmaZeroState:
    """Take a step of Adam, and move the threshold."""
    first, second = _BETAS
    mean = s.mean.lerp(grad, 1 - first)
    square = (second * s.square).addcmul_(grad, grad, value=1 - second)
    scale = (square / (1 - second ** (k + 1))).sqrt_().add_(1e-8)
    before, after = (_eta(max(number, 0), steps) for number in (k - 1, k))
    change = s.change - before / (1 - first ** (k + 1)) * mean / scale
    rise = torch.where(wrong, _RISE * after, -_RISE * after)
    return s._replace(
        change=change,
        mean=mean,
        square=square,
        threshold=(s.threshold + rise).clamp_(0, 1),
    )


def _eta(k: int, steps: int) -> float:
    return _ETA[1] + (_ETA[0] - _ETA[1]) * (1 + cos(pi * k / steps)) / 2
