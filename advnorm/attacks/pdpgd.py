r"""Primal-dual proximal gradient descent in L1 (Matyasko & Chau, 2021, arXiv:2106.01538).

The smallest change that is misclassified is a saddle point of the Lagrangian

.. math::
    \min_\delta \max_{\lambda \in \Delta} \; \lambda_0 \|\delta\|_1
    + \lambda_1 \log\bigl(1 + e^{m(x + \delta)}\bigr), \qquad
    m(x) = f_y(x) - \max_{k \ne y} f_k(x)

with weights in the simplex. A step of Adam on the smooth part, of size :math:`\eta_k` and
with the root d of its second moment, is followed by 5 inner steps of the norm's proximal
problem in Adam's metric (Melchior et al., 2019), which in L1 are one soft threshold per
feature, and by the box:

.. math::
    \delta &\leftarrow \delta - \eta_k \, \hat m / d \\
    \delta_i &\leftarrow \operatorname{sign}(\delta_i) \max(|\delta_i| - \tau_i, 0),
        \qquad \tau_i = \frac{\lambda_0}{\lambda_1} \frac{\eta_k}{d_i}
        \bigl(1 - (1 - d_i / \max_j d_j)^5\bigr) \\
    \log(\lambda_1 / \lambda_0) &\leftarrow \log(\lambda_1 / \lambda_0)
        + \theta_k \operatorname{sign}(m)

with :math:`\eta_k` from 0.1 to 0.001 geometrically, :math:`\theta_k` from 0.1 to 0.01
linearly, :math:`\lambda_1 / \lambda_0` = 100 at first, and moving averages of
:math:`\lambda` in use. Changes are measured in units of the range of a pixel.
"""

from functools import partial
from math import log
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

_ETA, _THETA = (0.1, 0.001), (0.1, 0.01)  # first and last, as published
_RATIO, _LARGEST_RATIO, _AVERAGE = 100.0, 1e6, 0.9
_BETAS = (0.9, 0.999)
_INNER_STEPS = 5  # all of them would keep few features too early


def pdpgd(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 500,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """PDPGD: primal-dual proximal, minimum-norm L1 attack (Matyasko & Chau, 2021).

    An image is finished once an adversarial image inside the ball is known. The arguments
    are those of :func:`advnorm.attacks.fmn.fmn`; the threat is an L1 ball.
    """
    nearest = pdpgd_nearest(
        logits_fn, clean, labels, threat, steps=steps, enough=threat.eps
    )
    return nearest.inside(clean.detach(), threat)


def pdpgd_nearest(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 500,
    enough: float = 0.0,
) -> NearestAdversarial:
    """Return the nearest adversarial inputs; of the threat, norm and bounds count."""
    refuse_other_norm(threat, "l1", "pdpgd minimizes the L1 distance")
    descend = partial(_descend, steps=steps)
    return search_nearest(
        logits_fn, clean, labels, threat, descend, enough=enough, promise=torch.inf
    )


class _PDPGDState(NamedTuple):
    """The samples that are still attacked; row i is one sample."""

    rows: Tensor
    clean: Tensor
    labels: Tensor
    change: Tensor
    mean: Tensor  # Adam's moments of the gradient
    square: Tensor
    log_ratio: Tensor  # of the weights, constraint over norm
    weights: Tensor  # of norm and constraint, averaged
    targets: Tensor

    def keep(self, rows: Tensor) -> "_PDPGDState":
        return _PDPGDState(*(value[rows] for value in self))


def _descend(
    problem: MinimumNormProblem,
    clean: Tensor,
    labels: Tensor,
    targets: Tensor | None,
    *,
    steps: int,
) -> NearestAdversarial:
    """Find the saddle point from correctly classified images."""
    threat, (low, high) = problem.threat, problem.threat.bounds
    best = NearestAdversarial.unknown(clean)
    extent, zeros = high - low, torch.zeros_like(clean)
    log_ratio = torch.full_like(best.distances, log(_RATIO))
    s = _PDPGDState(
        rows=torch.arange(len(clean), device=clean.device),
        clean=clean,
        labels=labels,
        change=zeros,
        mean=zeros,
        square=zeros,
        log_ratio=log_ratio,
        weights=_weights(log_ratio),
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
        descent = -column((-lead).sigmoid(), grad) * extent * grad
        change, mean, square = _primal_step(s, descent, k, steps)
        ends = ((edge - s.clean) / extent for edge in (low, high))
        theta = _THETA[0] + (_THETA[1] - _THETA[0]) * k / max(1, steps - 1)
        log_ratio = s.log_ratio + torch.where(wrong, -theta, theta)
        log_ratio = log_ratio.clamp_(-log(_LARGEST_RATIO), log(_LARGEST_RATIO))
        s = s._replace(
            change=torch.clamp(change, *ends),
            mean=mean,
            square=square,
            log_ratio=log_ratio,
            weights=s.weights.lerp(_weights(log_ratio), 1 - _AVERAGE),
        )
    return best


def _primal_step(
    s: _PDPGDState, descent: Tensor, k: int, steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Take a step of Adam, and the proximal step of the norm in its metric."""
    first, second = _BETAS
    mean = s.mean.lerp(descent, 1 - first)
    square = (second * s.square).addcmul_(descent, descent, value=1 - second)
    root = (square / (1 - second ** (k + 1))).sqrt_().add_(1e-8)
    eta = _ETA[0] * (_ETA[1] / _ETA[0]) ** (k / steps)
    change = s.change - eta / (1 - first ** (k + 1)) * mean / root
    metric = root / column(root.flatten(1).amax(1), root)
    threshold = column(s.weights[:, 0] / s.weights[:, 1], change) * eta / root
    threshold *= 1 - (1 - metric) ** _INNER_STEPS
    return (change.abs() - threshold).clamp_(min=0).copysign_(change), mean, square


def _weights(log_ratio: Tensor) -> Tensor:
    """Return the weights of norm and constraint, which sum to 1."""
    return torch.stack([(-log_ratio).sigmoid(), log_ratio.sigmoid()], dim=1)
