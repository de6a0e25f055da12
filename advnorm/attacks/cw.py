r"""The L2 attack of Carlini and Wagner (2017, https://arxiv.org/abs/1608.04644).

It looks for the nearest adversarial example, not for one inside a given ball:

.. math::
    \min_w \; \|x'(w) - x\|_2^2 + c \, f(x'(w)), \qquad
    x'(w) = \tfrac{h + l}{2} + \tfrac{h - l}{2} \tanh w

so that :math:`x'` is always a valid image in :math:`[l, h]`, with

.. math:: f(x') = \max\bigl(Z_y(x') - \max_{i \ne y} Z_i(x'), \, -\kappa\bigr)

for any wrong class, or :math:`\max(\max_{i \ne t} Z_i - Z_t, -\kappa)` for the class
:math:`t`. A binary search finds the smallest constant :math:`c` that succeeds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.aims import LogitsFn, hard_labels
from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.registry import ATTACKS
from advnorm.draws import Draws
from advnorm.threat import Bounds, Threat

_CHECKS = 10  # times in a descent that samples without progress are dropped
_PROGRESS = 0.9999  # share of the earlier loss that counts as progress
_NARROW = 0.99  # a bracket of c this tight is converged
_LARGEST = 1e10  # a sample that resists this c is given up
_BETAS, _ADAM_EPS = (0.9, 0.999), 1e-8


class Minimal(NamedTuple):
    """The nearest adversarial examples that were found."""

    adversarial: Tensor
    """Valid images, shaped like the clean ones; the clean image where none was found."""
    distance: Tensor
    """Their L2 distances, shape ``(batch,)``; infinite where none was found."""
    found: Tensor
    """Where there is one, shape ``(batch,)``."""


@dataclass(frozen=True)
class Search:
    r"""How hard to look; the published settings by default (galloway2019: 10,000 steps).

    ``confidence`` is :math:`\kappa`, by how much a wrong logit must lead the right one;
    ``constant`` the first :math:`c`, ``constants`` how many values of it are tried, and
    ``steps`` how many steps of Adam each value may take.
    """

    steps: int = 1000
    constants: int = 9
    constant: float = 1e-3
    learning_rate: float = 0.01
    confidence: float = 0.0

    def __post_init__(self) -> None:
        for name in ("steps", "constants", "constant", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, not {getattr(self, name):g}")
        if not self.confidence >= 0:
            raise ValueError(f"confidence must be >= 0, not {self.confidence:g}")


PUBLISHED = Search()


@ATTACKS.register("cw")
def cw(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    search: Search = PUBLISHED,
    targets: Tensor | None = None,
    draws: Draws | None = None,
) -> Tensor:
    """Return the nearest adversarial image where it is in the L2 ball, else the clean one.

    Args:
        logits_fn: Maps images in the threat's bounds to logits.
        clean: Clean images in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: An L2 ball with finite bounds.
        search: How hard to look.
        targets: Class indices to reach ``(batch,)``; by default any wrong class will do.
        draws: Not used: the attack is deterministic.
    """
    if threat.name != "l2":
        raise ValueError(
            f"cw minimizes the L2 distance and says nothing about a {threat.name} ball: "
            "use an L2 threat, or another attack"
        )
    nearest = cw_distance(
        logits_fn, clean, labels, bounds=threat.bounds, search=search, targets=targets
    )
    inside = _column(nearest.distance <= threat.eps, clean)
    return torch.where(inside, nearest.adversarial, clean.detach())


@torch.no_grad()
def cw_distance(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    *,
    bounds: Bounds = (0.0, 1.0),
    search: Search = PUBLISHED,
    targets: Tensor | None = None,
) -> Minimal:
    """Look for the nearest valid image that is misclassified, however far it is.

    The constant c grows tenfold until it succeeds and is then bisected, for each sample
    alone. An image that is adversarial as it stands is its own answer, at distance 0.

    Raises:
        NonFiniteGradientError: If a gradient held NaN or infinity.
    """
    if not all(isfinite(bound) for bound in bounds):
        raise ValueError(
            f"cw maps the whole line into the valid images by tanh: bounds must be finite, "
            f"not {bounds}"
        )
    classes = hard_labels(labels) if targets is None else targets
    goal = _Goal(logits_fn, bounds, search, sign=1 if targets is None else -1)
    done = goal.reached(goal.gap(logits_fn(clean), classes))
    best, distance = clean.detach().clone(), torch.where(done, 0.0, torch.inf)
    distance = distance.to(clean.dtype)
    lower, upper = torch.zeros_like(distance), torch.full_like(distance, torch.inf)
    c = torch.full_like(distance, search.constant)
    for _ in range(search.constants):
        rows = (~done).nonzero().squeeze(1)
        if not len(rows):
            break
        x, length, success = _descend(goal, clean[rows], classes[rows], c[rows])
        nearer = length < distance[rows]
        best[rows] = torch.where(_column(nearer, x), x, best[rows])
        distance[rows] = torch.minimum(length, distance[rows])
        lower[rows] = torch.where(success, lower[rows], c[rows])
        upper[rows] = torch.where(success, c[rows], upper[rows])
        c = torch.where(upper.isfinite(), (lower + upper) / 2, 10 * c)
        done |= (lower >= _NARROW * upper) | (c > _LARGEST)
    return Minimal(best, distance, distance.isfinite())


class _Gap(NamedTuple):
    """How far each sample is from the goal (negative: beyond it), and its rounding."""

    value: Tensor
    rounding: Tensor


@dataclass(frozen=True)
class _Goal:
    """What is asked of every sample of a batch."""

    logits_fn: LogitsFn
    bounds: Bounds
    search: Search
    sign: int
    """1 to leave the class, -1 to reach it."""

    def gap(self, logits: Tensor, classes: Tensor) -> _Gap:
        """Return the lead of the class over the best other one, or its negative."""
        own = logits.gather(1, classes[:, None]).squeeze(1)
        others = logits.scatter(1, classes[:, None], -torch.inf).amax(1)
        scale = logits.detach().abs().amax(1)
        return _Gap(self.sign * (own - others), 8 * torch.finfo(logits.dtype).eps * scale)

    def reached(self, gap: _Gap) -> Tensor:
        """Tell which samples succeed, by more than another batch size's rounding."""
        return gap.value < -self.search.confidence - gap.rounding


class _Descent(NamedTuple):
    """The samples that still descend: every field has one row a sample."""

    rows: Tensor
    clean: Tensor
    classes: Tensor
    c: Tensor
    w: Tensor
    mean: Tensor
    square: Tensor
    best: Tensor
    distance: Tensor
    loss: Tensor
    held: Tensor
    """Where there was a success since the last check."""
    finite: Tensor

    def keep(self, kept: Tensor) -> "_Descent":
        return _Descent(*(field[kept] for field in self))


def _descend(goal: _Goal, clean: Tensor, classes: Tensor, c: Tensor) -> Minimal:
    """Minimize for one constant a sample, and tell which constants hold their sample there.

    The first steps of Adam may overshoot into a success that a small constant cannot hold:
    a search that went on below it would never come near the boundary again. So a constant
    is found large enough only if a success fell between the last two checks.
    """
    now = _start(goal, clean, classes, c)
    best, distance, held = now.best.clone(), now.distance.clone(), now.held.clone()
    finite = torch.ones((), dtype=torch.bool, device=clean.device)
    for steps in _stretches(goal.search.steps):
        before, now = now.loss, now._replace(held=torch.zeros_like(now.held))
        for step in steps:
            now = _adam(goal, now, step)
        best[now.rows], distance[now.rows] = now.best, now.distance
        held[now.rows] = now.held
        finite &= now.finite.all()
        now = now.keep((now.loss <= _PROGRESS * before).nonzero().squeeze(1))
        if not len(now.rows):
            break
    if not finite:
        raise NonFiniteGradientError(
            "the attack met a gradient that is not finite: the model's logits overflow, or "
            "its weights or statistics are not numbers"
        )
    return Minimal(best, distance, held)


def _start(goal: _Goal, clean: Tensor, classes: Tensor, c: Tensor) -> _Descent:
    """Start at the clean images, pulled off the bounds, where tanh is never."""
    low, high = goal.bounds
    inner = 1 - 1e-6
    w = ((2 * clean - (high + low)) / (high - low)).clamp(-inner, inner).atanh()
    infinite = torch.full_like(c, torch.inf)
    return _Descent(
        rows=torch.arange(len(c), device=c.device),
        clean=clean,
        classes=classes,
        c=c,
        w=w,
        mean=torch.zeros_like(w),
        square=torch.zeros_like(w),
        best=clean,
        distance=infinite,
        loss=infinite,
        held=torch.zeros_like(c, dtype=torch.bool),
        finite=torch.ones_like(c, dtype=torch.bool),
    )


def _adam(goal: _Goal, now: _Descent, step: int) -> _Descent:
    """Judge the present images, then take one step of Adam (Kingma and Ba, 2015) on w."""
    low, high = goal.bounds
    tanh = now.w.tanh()
    x = ((high + low) / 2 + (high - low) / 2 * tanh).clamp_(low, high).requires_grad_()
    with torch.enable_grad():
        gap = goal.gap(goal.logits_fn(x), now.classes)
        f = gap.value.clamp(min=-goal.search.confidence)
        (slope,) = torch.autograd.grad(f.sum(), x)
    x = x.detach()
    delta = x - now.clean
    length = delta.flatten(1).norm(dim=1)
    reached = goal.reached(gap)
    nearer = reached & (length < now.distance)
    grad = 2 * delta + _column(now.c, x) * slope
    grad = grad.mul_((high - low) / 2).mul_(1 - tanh**2)
    mean = now.mean.lerp(grad, 1 - _BETAS[0])
    square = now.square.lerp(grad**2, 1 - _BETAS[1])
    scale = (square / (1 - _BETAS[1] ** step)).sqrt_().add_(_ADAM_EPS)
    rate = goal.search.learning_rate / (1 - _BETAS[0] ** step)
    return now._replace(
        w=now.w - rate * mean / scale,
        mean=mean,
        square=square,
        best=torch.where(_column(nearer, x), x, now.best),
        distance=torch.where(nearer, length, now.distance),
        loss=length**2 + now.c * (f.detach() + goal.search.confidence),  # never negative
        held=now.held | reached,
        finite=now.finite & slope.flatten(1).sum(1).isfinite(),
    )


def _stretches(steps: int) -> Iterator[range]:
    """Split the steps 1, 2, ... into the stretches between two checks."""
    length = max(steps // _CHECKS, 1)
    for first in range(1, steps + 1, length):
        yield range(first, min(first + length, steps + 1))


def _column(per_sample: Tensor, like: Tensor) -> Tensor:
    """Shape one number a sample to broadcast against a batch."""
    return per_sample.view(-1, *(1,) * (like.ndim - 1))
