r"""Auto-PGD in L1 balls (Croce & Hein, 2021, arXiv:2103.01208, Algorithm 1).

A step changes the features of the k largest entries of the gradient alone, by equal
amounts, and is projected onto the ball inside the box, exactly:

.. math::
    x \leftarrow \Pi_{S(x_0)}\bigl(x + \eta \, u / \|u\|_1\bigr), \qquad
    u_i = \operatorname{sign}(g_i) [|g_i| \ge |g|_{(k)}]

Sparsity and step size follow the best point :math:`x_{max}`. At every checkpoint, after 4%
of the steps, :math:`k = \|x_{max} - x_0\|_0 / 1.5`; and if the best point has become
sparser by 5% or more, :math:`\eta = \epsilon` and the search goes on from there, else
:math:`\eta \leftarrow \max(\eta / 1.5, \epsilon / 10)`.

The search begins in a ball of three times the radius for 30% of the steps, goes on in one
of twice the radius for 30%, and ends in the ball itself: each phase starts from the
projected best point of the phase before it.
"""

from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.auto_pgd import AutoPGDResult
from advnorm.attacks.parallel_runs import drop_siblings
from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.targets import Gain, LogitsFn
from advnorm.sparse_balls import top_signs
from advnorm.threat import Threat

_PHASES = ((3.0, 0.3), (2.0, 0.3), (1.0, 0.4))  # radius in eps, share of the steps
_REVIEW = 0.04  # share of a phase's steps between two checkpoints
_SPARSER, _DENSITY, _SHRINK, _SHORTEST = 0.95, 1.5, 1.5, 0.1


class _SparseState(NamedTuple):
    """The state of each sample that is still attacked; row i is one sample."""

    rows: Tensor
    owner: Tensor
    clean: Tensor
    labels: Tensor
    x: Tensor
    best_x: Tensor
    best_gain: Tensor
    grad: Tensor
    best_grad: Tensor
    step_size: Tensor
    width: Tensor  # features that a step changes
    changed: Tensor  # features of the best point that differ, at the last checkpoint

    def keep(self, rows: Tensor) -> "_SparseState":
        return _SparseState(*(value[rows] for value in self))


def auto_pgd_l1(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    gain: Gain,
    start: Tensor,
    *,
    steps: int,
    owner: Tensor | None = None,
) -> AutoPGDResult:
    """Run Algorithm 1 through the three radii; arguments as those of ``auto_pgd``.

    A sample leaves the batch where an iterate of the last phase fools the model. Iterates
    of the wider balls are no answers.
    """
    rows = torch.arange(len(clean), device=clean.device)
    unknown = clean.new_full((len(clean),), -torch.inf)
    result = AutoPGDResult(clean.clone(), unknown, torch.zeros_like(rows, dtype=torch.bool))
    owner, x = rows if owner is None else owner, _spread(start, clean, threat)
    left, finite = rows, torch.ones((), dtype=torch.bool, device=clean.device)
    for number, (factor, steps_of) in enumerate(_phases(steps)):
        ball = threat.scaled(factor)
        s = _begin(left, owner[left], clean[left], labels[left], x[left], ball)
        last = number == len(_PHASES) - 1
        s, is_finite = _run(s, logits_fn, gain, ball, result, steps_of, answers=last)
        finite &= is_finite
        x[s.rows] = s.best_x
        result.gains[s.rows] = s.best_gain
        left = s.rows
    if not finite:
        raise NonFiniteGradientError(
            "the attack met a gradient or a logit that is not finite: the model's logits "
            "overflow, or its weights or statistics are not numbers"
        )
    result.images[left] = x[left]
    return result


def _phases(steps: int) -> list[tuple[float, int]]:
    """Return radius and steps of each phase.

    >>> _phases(100)
    [(3.0, 30), (2.0, 30), (1.0, 40)]
    """
    counts = [ceil(share * steps) for _, share in _PHASES[:-1]]
    counts = [min(count, max(steps - 1, 0) // 2) for count in counts]
    factors = [factor for factor, _ in _PHASES]
    return list(zip(factors, [*counts, steps - sum(counts)], strict=True))


def _spread(start: Tensor, clean: Tensor, threat: Threat) -> Tensor:
    """Turn the start's change into normal noise, for the projection to make sparse.

    In a ball changes are exponential. Projected, they would leave few features changed, and
    the steps follow their number; the authors' code projects standard normal noise.
    """
    size = clean[0].numel() if len(clean) else 1
    change = start - clean
    tail = (change.abs() * (size / max(threat.eps, 1e-12))).neg().exp() / 2
    tail = tail.clamp(min=torch.finfo(tail.dtype).tiny)
    noise: Tensor = torch.special.ndtri(tail) * change.sign()
    return clean - noise


def _begin(
    rows: Tensor, owner: Tensor, clean: Tensor, labels: Tensor, x: Tensor, ball: Threat
) -> _SparseState:
    x = ball.project(x, clean)
    changed = (x != clean).flatten(1).sum(1)
    unknown, zeros = clean.new_full((len(rows),), -torch.inf), torch.zeros_like(clean)
    step_size = torch.full_like(unknown, ball.eps)
    return _SparseState(
        rows=rows,
        owner=owner,
        clean=clean,
        labels=labels,
        x=x,
        best_x=x,
        best_gain=unknown,
        grad=zeros,
        best_grad=zeros,
        step_size=step_size,
        width=_fewer(changed),
        changed=changed,
    )


def _fewer(changed: Tensor) -> Tensor:
    return (changed / _DENSITY).ceil().long().clamp_(min=1)


def _run(
    s: _SparseState,
    logits_fn: LogitsFn,
    gain: Gain,
    ball: Threat,
    result: AutoPGDResult,
    steps: int,
    *,
    answers: bool,
) -> tuple[_SparseState, Tensor]:
    """Run one phase; with ``answers``, iterates that fool the model end their samples."""
    review = max(int(_REVIEW * steps), 1)
    finite = torch.ones((), dtype=torch.bool, device=result.gains.device)
    for k in range(steps + 1):
        if not len(s.rows):
            break
        s, is_finite = _evaluate(s, logits_fn, gain, result, answers, k < steps)
        finite &= is_finite
        if k and k % review == 0:
            s = _review(s, ball.eps)
        if k < steps:
            s = _step(s, ball)
    return s, finite


def _evaluate(
    s: _SparseState,
    logits_fn: LogitsFn,
    gain: Gain,
    result: AutoPGDResult,
    answers: bool,
    differentiate: bool,
) -> tuple[_SparseState, Tensor]:
    """Evaluate the iterates, keep the best ones, and drop samples that are answered."""
    x = s.x.detach().requires_grad_(differentiate)
    with torch.set_grad_enabled(differentiate):
        logits = logits_fn(x)
        padded = logits.new_zeros(len(result.gains), logits.shape[1])
        gains = gain(padded.index_copy(0, s.rows, logits))[s.rows]
        total = gains.sum()
    grad = torch.autograd.grad(total, x)[0] if differentiate else s.grad
    with torch.no_grad():
        top, guess = logits.detach().max(1)
        finite = top.isfinite().all() & grad.sum().isfinite()
        values = gains.detach().to(s.best_gain.dtype)
        fooled = guess != s.labels
        if answers and bool(fooled.any()):
            rows = s.rows[fooled]
            result.images[rows] = s.x[fooled]
            result.gains[rows], result.broken[rows] = values[fooled], True
            left = drop_siblings(s.owner, fooled)
            s, values, grad = s.keep(left), values[left], grad[left]
        better = values > s.best_gain
        wide = better.view(-1, *(1,) * (s.x.ndim - 1))
        return s._replace(
            grad=grad,
            best_x=torch.where(wide, s.x, s.best_x),
            best_gain=torch.where(better, values, s.best_gain),
            best_grad=torch.where(wide, grad, s.best_grad),
        ), finite


def _review(s: _SparseState, eps: float) -> _SparseState:
    """Adapt sparsity and step size to the best point, and go back to it if sparser."""
    changed = (s.best_x != s.clean).flatten(1).sum(1)
    sparser = changed < _SPARSER * s.changed
    wide = sparser.view(-1, *(1,) * (s.x.ndim - 1))
    shorter = (s.step_size / _SHRINK).clamp(min=_SHORTEST * eps)
    return s._replace(
        x=torch.where(wide, s.best_x, s.x),
        grad=torch.where(wide, s.best_grad, s.grad),
        step_size=torch.where(sparser, eps, shorter),
        width=_fewer(changed),
        changed=changed,
    )


def _step(s: _SparseState, ball: Threat) -> _SparseState:
    direction = top_signs(s.grad.flatten(1), s.width) * s.step_size[:, None]
    return s._replace(x=ball.project(s.x + direction.view_as(s.x), s.clean))
