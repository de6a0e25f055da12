r"""The descent of the L2 attack of Carlini and Wagner (2017) at fixed constants c.

.. math::
    \min_w \; \|x'(w) - x\|_2^2 + c \, f(x'(w)), \qquad
    x'(w) = \tfrac{h + l}{2} + \tfrac{h - l}{2} \tanh w

by Adam, one constant per sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.targets import LogitsFn
from advnorm.threat import Bounds

_CHECKS = 10  # times in a descent that samples without progress are dropped
_PROGRESS = 0.9999  # share of the earlier loss that counts as progress
_BETAS, _ADAM_EPS = (0.9, 0.999), 1e-8


class CWResult(NamedTuple):
    """The nearest adversarial examples that were found."""

    adversarial: Tensor
    """Valid images, shaped like the clean ones; the clean image where none was found."""
    distance: Tensor
    """Their L2 distances, shape ``(batch,)``; infinite where none was found."""
    success: Tensor
    """Where an adversarial example was found, shape ``(batch,)``."""


@dataclass(frozen=True)
class CWSettings:
    r"""The effort of the search; by default the published one (galloway2019: 10,000 steps).

    ``steps`` and ``lr`` are Adam's, for each value of :math:`c`. ``constant`` is the first
    :math:`c`, for images in a range of 1 (in another, distances are measured in units of
    it), and ``constants`` the number of values that are tried. ``confidence`` is
    :math:`\kappa`: by how much a wrong logit must lead the right one.
    """

    steps: int = 1000
    constants: int = 9
    constant: float = 1e-3
    lr: float = 0.01
    confidence: float = 0.0

    def __post_init__(self) -> None:
        for name in ("steps", "constants", "constant", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, not {getattr(self, name):g}")
        if not self.confidence >= 0:
            raise ValueError(f"confidence must be >= 0, not {self.confidence:g}")


class _Gap(NamedTuple):
    """How far each sample is from the goal (negative: beyond it), and its rounding."""

    value: Tensor
    rounding: Tensor


@dataclass(frozen=True)
class CWProblem:
    """The search problem that all samples of a batch share."""

    logits_fn: LogitsFn
    bounds: Bounds
    search: CWSettings
    sign: int
    """1 to leave the class, -1 to reach it."""

    def gap(self, logits: Tensor, classes: Tensor) -> _Gap:
        """Return the lead of the class over the best other one, or its negative."""
        own = logits.gather(1, classes[:, None]).squeeze(1)
        others = logits.scatter(1, classes[:, None], -torch.inf).amax(1)
        scale = logits.detach().abs().amax(1)
        return _Gap(self.sign * (own - others), 8 * torch.finfo(logits.dtype).eps * scale)

    def reached(self, gap: _Gap) -> Tensor:
        """Tell which samples succeed by more than the rounding of another batch size."""
        return gap.value < -self.search.confidence - gap.rounding

    def inside(self, images: Tensor) -> Tensor:
        """Return tanh w of images, pulled off the bounds, where tanh never is."""
        low, high = self.bounds
        inner = 1 - 1e-6
        return ((2 * images - (high + low)) / (high - low)).clamp(-inner, inner)

    def step_length(self, images: Tensor) -> Tensor:
        """Return how far a step of 1 in each w moves the images, to first order."""
        low, high = self.bounds
        slope = (high - low) / 2 * (1 - self.inside(images) ** 2)
        length: Tensor = slope.flatten(1).norm(dim=1)
        return length


class _Descent(NamedTuple):
    """The samples that still descend: every field has one row per sample."""

    rows: Tensor
    clean: Tensor
    classes: Tensor
    c: Tensor
    lr: Tensor
    w: Tensor
    mean: Tensor
    square: Tensor
    best: Tensor
    distance: Tensor
    loss: Tensor
    succeeded: Tensor
    """Where there was a success since the last check."""
    finite: Tensor

    def keep(self, kept: Tensor) -> "_Descent":
        return _Descent(*(field[kept] for field in self))


def descend(
    problem: CWProblem, clean: Tensor, classes: Tensor, c: Tensor, lr: Tensor
) -> CWResult:
    """Minimize with one constant per sample, and tell which constants are large enough.

    The first steps of Adam may overshoot into a success that a small constant cannot hold:
    a search that went on below it would never come near the boundary again. So a constant
    is found large enough only if a success fell between the last two checks.
    """
    low, high = problem.bounds
    c = c * (high - low) ** 2  # the distance counts in units of the range
    now = _start(problem, clean, classes, c, lr)
    best, distance, succeeded = (
        now.best.clone(),
        now.distance.clone(),
        now.succeeded.clone(),
    )
    finite = torch.ones((), dtype=torch.bool, device=clean.device)
    for steps in _intervals(problem.search.steps):
        before, now = now.loss, now._replace(succeeded=torch.zeros_like(now.succeeded))
        for step in steps:
            now = _adam(problem, now, step)
        best[now.rows], distance[now.rows] = now.best, now.distance
        succeeded[now.rows] = now.succeeded
        finite &= now.finite.all()
        now = now.keep((now.loss <= _PROGRESS * before).nonzero().squeeze(1))
        if not len(now.rows):
            break
    if not finite:
        raise NonFiniteGradientError(
            "the attack met a gradient that is not finite: the model's logits overflow, or "
            "its weights or statistics are not numbers"
        )
    return CWResult(best, distance, succeeded)


def _start(
    problem: CWProblem, clean: Tensor, classes: Tensor, c: Tensor, lr: Tensor
) -> _Descent:
    """Start at the clean images, with one learning rate per sample."""
    w = problem.inside(clean).atanh()
    infinite = torch.full_like(c, torch.inf)
    return _Descent(
        rows=torch.arange(len(c), device=c.device),
        clean=clean,
        classes=classes,
        c=c,
        lr=lr,
        w=w,
        mean=torch.zeros_like(w),
        square=torch.zeros_like(w),
        best=clean,
        distance=infinite,
        loss=infinite,
        succeeded=torch.zeros_like(c, dtype=torch.bool),
        finite=torch.ones_like(c, dtype=torch.bool),
    )


def _adam(problem: CWProblem, now: _Descent, step: int) -> _Descent:
    """Evaluate the present images, then step w by Adam (Kingma and Ba, 2015)."""
    low, high = problem.bounds
    tanh = now.w.tanh()
    x = ((high + low) / 2 + (high - low) / 2 * tanh).clamp_(low, high).requires_grad_()
    with torch.enable_grad():
        gap = problem.gap(problem.logits_fn(x), now.classes)
        f = gap.value.clamp(min=-problem.search.confidence)
        (slope,) = torch.autograd.grad(f.sum(), x)
    x = x.detach()
    delta = x - now.clean
    length = delta.flatten(1).norm(dim=1)
    reached = problem.reached(gap)
    nearer = reached & (length < now.distance)
    grad = 2 * delta + column(now.c, x) * slope
    grad = grad.mul_((high - low) / 2).mul_(1 - tanh**2)
    mean = now.mean.lerp(grad, 1 - _BETAS[0])
    square = now.square.lerp(grad**2, 1 - _BETAS[1])
    scale = (square / (1 - _BETAS[1] ** step)).sqrt_().add_(_ADAM_EPS)
    lr = column(now.lr, x) / (1 - _BETAS[0] ** step)
    return now._replace(
        w=now.w - lr * mean / scale,
        mean=mean,
        square=square,
        best=torch.where(column(nearer, x), x, now.best),
        distance=torch.where(nearer, length, now.distance),
        loss=length**2 + now.c * (f.detach() + problem.search.confidence),  # never negative
        succeeded=now.succeeded | reached,
        finite=now.finite & slope.flatten(1).sum(1).isfinite(),
    )


def _intervals(steps: int) -> Iterator[range]:
    """Split the steps 1, 2, ... into the intervals between two checks."""
    length = max(steps // _CHECKS, 1)
    for first in range(1, steps + 1, length):
        yield range(first, min(first + length, steps + 1))


def column(per_sample: Tensor, like: Tensor) -> Tensor:
    """Shape one number per sample to broadcast against a batch."""
    return per_sample.view(-1, *(1,) * (like.ndim - 1))
