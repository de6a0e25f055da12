r"""The fast minimum-norm attack (Pintor et al., 2021, https://arxiv.org/abs/2102.12827).

For any norm of Linf, L2, L1 and L0 (Algorithm 1). A step follows the gradient g of the lead
of a wrong class, and is projected onto a ball whose radius follows the boundary:

.. math::
    x &\leftarrow \Pi_{\epsilon}\bigl(x + \alpha_k g / \|g\|_2\bigr) \\
    \epsilon &\leftarrow \begin{cases}
        \min\bigl((1 - \gamma_k) \epsilon, \|\delta^*\|\bigr) & \text{misclassified} \\
        (1 + \gamma_k) \epsilon & \text{misclassified before} \\
        \|\delta\| + |\ell(x)| / \|g\|_q & \text{never yet}
    \end{cases}

with :math:`\delta^*` the nearest change so far, q the dual norm, and :math:`\alpha_k` from
1 to 0.01 and :math:`\gamma_k` from 0.05 to 0.001 along half a cosine. In L0 the radius
begins at 1 and changes by one feature at least.
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
    search_nearest,
)
from advnorm.attacks.targets import LogitsFn
from advnorm.draws import Draws
from advnorm.threat import Threat

_ALPHA, _GAMMA = (1.0, 0.01), (0.05, 0.001)  # first and last, as published
_BEYOND = 1.01  # of the way to the boundary, so that rounding does not stop before it
_DUALS = {"linf": 1.0, "l2": 2.0, "l1": torch.inf}


def fmn(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 1000,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """FMN: fast minimum-norm attack, in any norm (Pintor et al., 2021).

    An image is finished once an adversarial image inside the ball is known.

    Args:
        logits_fn: Maps inputs in the threat's bounds to logits.
        clean: Clean inputs in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: The set to search, of any norm.
        steps: Number of steps.
        draws: Not used, as nothing here is random; every attack takes it.
        generator: Not used either.

    Returns:
        An admissible misclassified input where one was met, else the clean one.

    Raises:
        NonFiniteGradientError: If a logit or a gradient held NaN or infinity.
    """
    nearest = fmn_nearest(logits_fn, clean, labels, threat, steps=steps, enough=threat.eps)
    return nearest.inside(clean.detach(), threat)


def fmn_nearest(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 1000,
    enough: float = 0.0,
) -> NearestAdversarial:
    """Return the nearest adversarial inputs; of the threat, norm and bounds count."""
    descend = partial(_descend, steps=steps)
    return search_nearest(logits_fn, clean, labels, threat, descend, enough=enough)


class _FMNState(NamedTuple):
    """The samples that are still attacked; row i is one sample."""

    rows: Tensor
    clean: Tensor
    labels: Tensor
    x: Tensor
    radius: Tensor
    most: Tensor  # the distance of the furthest valid image
    targets: Tensor

    def keep(self, rows: Tensor) -> "_FMNState":
        return _FMNState(*(value[rows] for value in self))


def _descend(
    problem: MinimumNormProblem,
    clean: Tensor,
    labels: Tensor,
    targets: Tensor | None,
    *,
    steps: int,
) -> NearestAdversarial:
    """Run Algorithm 1 on correctly classified images."""
    threat, is_l0 = problem.threat, problem.threat.name == "l0"
    best = NearestAdversarial.unknown(clean)
    low, high = threat.bounds
    furthest = torch.where(clean - low > high - clean, low, high)
    s = _FMNState(
        rows=torch.arange(len(clean), device=clean.device),
        clean=clean,
        labels=labels,
        x=clean,
        radius=torch.ones_like(best.distances) if is_l0 else best.distances.clone(),
        most=threat.distance(furthest, clean),
        targets=labels if targets is None else targets,
    )
    for k in range(steps):
        share = (1 + cos(pi * k / steps)) / 2
        alpha, gamma = (last + (first - last) * share for first, last in (_ALPHA, _GAMMA))
        lead, grad, wrong = problem.slope(
            s.x, s.labels, None if targets is None else s.targets
        )
        distance = threat.distance(s.x, s.clean)
        best.keep(s.rows, s.x, distance, wrong)
        left = best.unfinished(s.rows, problem.enough)
        if len(left) < len(s.rows):
            s, lead, grad = s.keep(left), lead[left], grad[left]
            wrong, distance = wrong[left], distance[left]
        if not len(left):
            break
        radius = _follow(
            s, best.distances[s.rows], lead, grad, wrong, distance, gamma, threat
        )
        length = grad.flatten(1).norm(dim=1).clamp(min=torch.finfo(grad.dtype).tiny)
        x = s.x + alpha * grad / column(length, grad)
        s = s._replace(radius=radius, x=threat.shrink(x, s.clean, radius))
    return best


def _follow(
    s: _FMNState,
    nearest: Tensor,
    lead: Tensor,
    grad: Tensor,
    wrong: Tensor,
    distance: Tensor,
    gamma: float,
    threat: Threat,
) -> Tensor:
    """Return the next radius: a little smaller inside the wrong class, else larger."""
    if threat.name == "l0":
        smaller = torch.minimum(s.radius - 1, (s.radius * (1 - gamma)).floor())
        larger = torch.maximum(s.radius + 1, (s.radius * (1 + gamma)).floor())
        radius = torch.where(wrong, torch.minimum(smaller, nearest), larger)
        return torch.minimum(radius.clamp_(min=1), s.most)
    slope = grad.flatten(1).norm(p=_DUALS[threat.name], dim=1).clamp(min=1e-12)
    towards = torch.where(
        nearest.isfinite(),
        s.radius * (1 + gamma),
        distance + _BEYOND * lead.abs() / slope,
    )
    radius = torch.where(wrong, torch.minimum(s.radius * (1 - gamma), nearest), towards)
    return torch.minimum(radius, s.most)
