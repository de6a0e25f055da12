r"""The decoupled direction and norm attack (Rony et al., 2019, arXiv:1811.09600), in L2.

The direction of the change follows the gradient g of the cross-entropy; its norm grows and
shrinks by 5%, as the image is classified correctly or not (Algorithm 1):

.. math::
    \delta &\leftarrow \delta + \alpha_k \, g / \|g\|_2 \\
    \epsilon &\leftarrow (1 \mp \gamma) \, \epsilon
        \quad \text{(misclassified, correct)} \\
    x' &\leftarrow \Pi_{box}\bigl(x + \epsilon \, \delta / \|\delta\|_2\bigr)

with :math:`\gamma = 0.05` and :math:`\alpha_k` from 1 to 0.01 along half a cosine. Values
are not rounded to 256 levels here.
"""

from functools import partial
from math import cos, pi
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.attacks.minimum_norm import (
    MinimumNormProblem,
    NearestAdversarial,
    column,
    is_wrong,
    refuse_other_norm,
    search_nearest,
)
from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.targets import LogitsFn
from advnorm.draws import Draws
from advnorm.threat import Threat

_ALPHA, _GAMMA, _START = (1.0, 0.01), 0.05, 1.0  # as published, for images in [0, 1]


def ddn(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 300,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """DDN: decoupled direction and norm, a minimum-norm L2 attack (Rony et al., 2019).

    An image is finished once an adversarial image inside the ball is known. The arguments
    are those of :func:`advnorm.attacks.fmn.fmn`; the threat is an L2 ball.
    """
    nearest = ddn_nearest(logits_fn, clean, labels, threat, steps=steps, enough=threat.eps)
    return nearest.inside(clean.detach(), threat)


def ddn_nearest(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 300,
    enough: float = 0.0,
) -> NearestAdversarial:
    """Return the nearest adversarial inputs; of the threat, norm and bounds count."""
    refuse_other_norm(threat, "l2", "ddn minimizes the L2 distance")
    descend = partial(_descend, steps=steps)
    return search_nearest(logits_fn, clean, labels, threat, descend, enough=enough)


class _DDNState(NamedTuple):
    """The samples that are still attacked; row i is one sample."""

    rows: Tensor
    clean: Tensor
    labels: Tensor
    x: Tensor
    radius: Tensor
    targets: Tensor

    def keep(self, rows: Tensor) -> "_DDNState":
        return _DDNState(*(value[rows] for value in self))


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
    extent = high - low
    s = _DDNState(
        rows=torch.arange(len(clean), device=clean.device),
        clean=clean,
        labels=labels,
        x=clean,
        radius=torch.full_like(best.distances, _START * extent),
        targets=labels if targets is None else targets,
    )
    furthest = torch.where(clean - low > high - clean, low, high)
    most = threat.distance(furthest, clean)
    for k in range(steps):
        wrong, grad = _ascent(problem.logits_fn, s, targeted=targets is not None)
        best.keep(s.rows, s.x, threat.distance(s.x, s.clean), wrong)
        left = best.unfinished(s.rows, problem.enough)
        if len(left) < len(s.rows):
            s, grad, wrong = s.keep(left), grad[left], wrong[left]
        if not len(left):
            break
        share = (1 + cos(pi * k / steps)) / 2
        alpha = extent * (_ALPHA[1] + (_ALPHA[0] - _ALPHA[1]) * share)
        change = s.x - s.clean + alpha * threat.direction(grad)
        radius = s.radius * torch.where(wrong, 1 - _GAMMA, 1 + _GAMMA)
        radius = torch.minimum(radius, most[s.rows])
        x = s.clean + column(radius, change) * threat.direction(change)
        s = s._replace(radius=radius, x=x.clamp_(low, high))
    return best


def _ascent(logits_fn: LogitsFn, s: _DDNState, *, targeted: bool) -> tuple[Tensor, Tensor]:
    """Return which points are misclassified, and the gradient to be followed."""
    x = s.x.detach().requires_grad_()
    with torch.enable_grad():
        logits = logits_fn(x)
        loss = F.cross_entropy(logits, s.targets, reduction="sum")
        (grad,) = torch.autograd.grad(-loss if targeted else loss, x)
    if not (loss.detach() + grad.sum()).isfinite():
        raise NonFiniteGradientError(
            "DDN met a logit or a gradient that is not finite: the model's logits "
            "overflow, or its weights or statistics are not numbers"
        )
    return is_wrong(logits.detach(), s.labels), grad
