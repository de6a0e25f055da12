r"""Auto-PGD (Croce & Hein, 2020, https://arxiv.org/abs/2003.01690, Algorithm 1).

Gradient ascent with momentum whose step size needs no choice: it starts at
:math:`2\epsilon` and is halved for each sample that stopped to improve, which then goes on
from its best point.

.. math::
    z^{(k+1)} &= \Pi_{S(x)}\bigl(x^{(k)} + \eta^{(k)} d(\nabla \ell(x^{(k)}))\bigr) \\
    x^{(k+1)} &= \Pi_{S(x)}\bigl(x^{(k)} + \alpha (z^{(k+1)} - x^{(k)})
                 + (1 - \alpha)(x^{(k)} - x^{(k-1)})\bigr)

with :math:`\alpha = 0.75`, and 1 in the first step. K steps cost K + 1 forward passes and
K gradients at most: a sample is finished, and leaves the batch, where an iterate fools the
model.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.parallel_runs import drop_siblings
from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.targets import Gain, LogitsFn
from advnorm.threat import Threat

_ALPHA = 0.75


def checkpoints(steps: int) -> Iterator[int]:
    r"""Yield the steps :math:`w_j = \lceil p_j K \rceil` at which step sizes are reviewed.

    :math:`p_0 = 0, p_1 = 0.22, p_{j+1} = p_j + \max(p_j - p_{j-1} - 0.03, 0.06)`; in
    hundredths here, so that rounding up is exact.

    >>> list(checkpoints(100))
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    percent, stride, last = 22, 22, 0
    while percent <= 100:
        w = -(-percent * steps // 100)
        if w > last:
            yield w
        stride, last = max(stride - 3, 6), w
        percent += stride


class AutoPGDResult(NamedTuple):
    """What a run returns for each sample."""

    images: Tensor
    gains: Tensor
    broken: Tensor


class _State(NamedTuple):
    """The state of each sample that is still attacked; row i is one sample."""

    rows: Tensor  # where the samples are in the batch that the run was given
    owner: Tensor  # which image a row is an attempt on
    clean: Tensor
    labels: Tensor
    x: Tensor
    previous: Tensor
    gain: Tensor
    grad: Tensor
    best_x: Tensor
    best_gain: Tensor
    best_grad: Tensor
    step_size: Tensor
    rises: Tensor  # since the last checkpoint
    reviewed_gain: Tensor  # the best gain at the last checkpoint
    halved: Tensor  # at the last checkpoint

    def keep(self, rows: Tensor) -> "_State":
        return _State(*(value[rows] for value in self))


def auto_pgd(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    gain: Gain,
    start: Tensor,
    *,
    steps: int,
    rho: float,
    owner: Tensor | None = None,
) -> AutoPGDResult:
    """Run Algorithm 1 once; a sample leaves the batch where an iterate fools the model.

    Several rows may be attempts on one image, whose number is then in ``owner``: a success
    ends the other attempts on that image.
    """
    s = _begin(clean, labels, start, 2 * threat.eps, owner)
    result = AutoPGDResult(start.clone(), s.best_gain.clone(), torch.zeros_like(s.halved))
    finite = torch.ones((), dtype=torch.bool, device=clean.device)
    reviews, last_review = set(checkpoints(steps)), 0
    for k in range(steps + 1):
        if not len(s.rows):
            break
        s, is_finite = _evaluate(s, logits_fn, gain, result, differentiate=k < steps)
        finite &= is_finite
        if k in reviews:
            s, last_review = _review(s, rho * (k - last_review)), k
        if k < steps:
            s = _step(s, threat, alpha=_ALPHA if k else 1.0)
    if not finite:
        raise NonFiniteGradientError(
            "the attack met a gradient or a logit that is not finite: the model's logits "
            "overflow, or its weights or statistics are not numbers"
        )
    result.images[s.rows] = s.best_x
    result.gains[s.rows] = s.best_gain
    return result


def _begin(
    clean: Tensor, labels: Tensor, start: Tensor, step_size: float, owner: Tensor | None
) -> _State:
    count, device = len(clean), clean.device
    zeros, unknown = torch.zeros_like(clean), clean.new_full((count,), -torch.inf)
    rows = torch.arange(count, device=device)
    return _State(
        rows=rows,
        owner=rows if owner is None else owner,
        clean=clean,
        labels=labels,
        x=start,
        previous=start,
        gain=-unknown,  # the first iterate does not count as a rise
        grad=zeros,
        best_x=start,
        best_gain=unknown,
        best_grad=zeros,
        step_size=clean.new_full((count, *(1,) * (clean.ndim - 1)), step_size),
        rises=torch.zeros(count, dtype=torch.long, device=device),
        reviewed_gain=unknown,
        halved=torch.zeros(count, dtype=torch.bool, device=device),
    )


def _evaluate(
    s: _State,
    logits_fn: LogitsFn,
    gain: Gain,
    result: AutoPGDResult,
    *,
    differentiate: bool,
) -> tuple[_State, Tensor]:
    """Evaluate the iterates; those that fool the model go to ``result`` and are dropped.

    Returns the state of the others, and whether all logits and gradients are finite.
    """
    x = s.x.detach().requires_grad_(differentiate)
    with torch.set_grad_enabled(differentiate):
        logits = logits_fn(x)
        gains = _gain_of_rows(gain, logits, s.rows, len(result.gains))
        total = gains.sum()
    with torch.no_grad():
        top, guess = logits.max(1)
        fooled, is_finite = guess != s.labels, top.isfinite().all()
        left = (~fooled).nonzero().squeeze(1)
        values = gains.detach().to(s.gain.dtype)
        grad = s.grad
        if differentiate and len(left):
            (grad,) = torch.autograd.grad(total, x)
        if len(left) < len(s.rows):
            rows = s.rows[fooled]
            result.images[rows] = s.x[fooled]
            result.gains[rows] = values[fooled]
            result.broken[rows] = True
            left = drop_siblings(s.owner, fooled)
            s, values, grad = s.keep(left), values[left], grad[left]
        return _compare(s, values, grad), is_finite & grad.sum().isfinite()


def _gain_of_rows(gain: Gain, logits: Tensor, rows: Tensor, count: int) -> Tensor:
    """Evaluate a gain of ``count`` samples for some of their rows."""
    if len(rows) == count:
        return gain(logits)
    padded = logits.new_zeros(count, logits.shape[1]).index_copy(0, rows, logits)
    return gain(padded)[rows]


def _compare(s: _State, gain: Tensor, grad: Tensor) -> _State:
    """Count the steps that raised the gain, and keep the best iterate."""
    better = gain > s.best_gain
    wide = better.view(s.step_size.shape).to(s.x.dtype)
    return s._replace(
        gain=gain,
        grad=grad,
        best_x=s.best_x.lerp(s.x, wide),  # exact at 0 and 1, and faster than where
        best_gain=torch.where(better, gain, s.best_gain),
        best_grad=s.best_grad.lerp(grad, wide),
        rises=s.rises + (gain > s.gain),
    )


def _review(s: _State, enough: float) -> _State:
    r"""Halve the step size where it is too long, and go back to the best iterate there.

    It is too long if the gain rose in fewer than :math:`\rho (w_j - w_{j-1})` steps since
    the last checkpoint (condition 1), or if neither the step size was changed at the last
    checkpoint nor the best gain since (condition 2).
    """
    stuck = ~s.halved & (s.best_gain == s.reviewed_gain)
    halve = (s.rises < enough) | stuck
    wide = halve.view(s.step_size.shape)
    return s._replace(
        x=torch.where(wide, s.best_x, s.x),
        gain=torch.where(halve, s.best_gain, s.gain),
        grad=torch.where(wide, s.best_grad, s.grad),
        step_size=torch.where(wide, s.step_size / 2, s.step_size),
        rises=torch.zeros_like(s.rises),
        reviewed_gain=s.best_gain,
        halved=halve,
    )


def _step(s: _State, threat: Threat, *, alpha: float) -> _State:
    z = threat.project(s.x.addcmul(s.step_size, threat.direction(s.grad)), s.clean)
    x = s.x.lerp(z, alpha).add_(s.x - s.previous, alpha=1 - alpha)
    return s._replace(previous=s.x, x=threat.project(x, s.clean))
