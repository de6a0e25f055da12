r"""The L2 attack of Carlini and Wagner (2017, https://arxiv.org/abs/1608.04644).

It looks for the nearest adversarial example, not for one inside a given ball:

.. math::
    \min_w \; \|x'(w) - x\|_2^2 + c \, f(x'(w)), \qquad
    x'(w) = \tfrac{h + l}{2} + \tfrac{h - l}{2} \tanh w

so that :math:`x'` is always a valid image in :math:`[l, h]`, with

.. math:: f(x') = \max\bigl(Z_y(x') - \max_{i \ne y} Z_i(x'), \, -\kappa\bigr)

for any wrong class, or :math:`\max(\max_{i \ne t} Z_i - Z_t, -\kappa)` for the class
:math:`t`. A binary search finds the smallest constant :math:`c` that succeeds.

The first of these follows the wrong class whose logit leads, which need not be the nearest
one, and with several classes it has a local minimum at each. So with more than two classes
a second search has the nearest class, to first order, as its target :math:`t`:

.. math:: d_t = \frac{Z_y(x) - Z_t(x) + \kappa}{\|\nabla (Z_y - Z_t)(x)\|_2}

where its :math:`d_t` promises a nearer image than the first search found. For a linear
model :math:`d_t` is the distance, and the targeted problem is convex.
"""

from dataclasses import replace
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.cw_descent import CWProblem, CWResult, CWSettings, column, descend
from advnorm.attacks.targets import LogitsFn, hard_labels
from advnorm.draws import Draws
from advnorm.threat import Bounds, Threat

__all__ = ["CWResult", "CWSettings", "cw", "cw_distance"]

_NARROW = 0.99  # a bracket of c this tight is converged
_LARGEST = 1e10  # a sample that resists this c is given up
_NEARER = 0.995  # a rival this much nearer, to first order, is worth a search
_STRIDE = 0.1  # length of a step, as a share of the distance found
_HALVINGS = 12  # of the way from the clean image to the one found
_RANKED = 9  # classes whose first-order distance is looked at, by their logits
PUBLISHED = CWSettings()


def cw(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    search: CWSettings = PUBLISHED,
    targets: Tensor | None = None,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return the nearest adversarial image where it is in the L2 ball, else the clean one.

    Args:
        logits_fn: Maps images in the threat's bounds to logits.
        clean: Clean images in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: An L2 ball with finite bounds.
        search: How hard to look.
        targets: Class indices to reach ``(batch,)``; by default any wrong class will do.
        draws: Not used, as nothing here is random; every attack takes it.
        generator: Not used either.
    """
    if threat.name != "l2":
        raise ValueError(
            f"cw minimizes the L2 distance and says nothing about a {threat.name} ball: "
            "use an L2 threat, or another attack"
        )
    nearest = cw_distance(
        logits_fn, clean, labels, bounds=threat.bounds, search=search, targets=targets
    )
    inside = column(nearest.distance <= threat.eps, clean)
    return torch.where(inside, nearest.adversarial, clean.detach())


@torch.no_grad()
def cw_distance(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    *,
    bounds: Bounds = (0.0, 1.0),
    search: CWSettings = PUBLISHED,
    targets: Tensor | None = None,
) -> CWResult:
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
    problem = CWProblem(logits_fn, bounds, search, sign=1 if targets is None else -1)
    logits = logits_fn(clean)
    done = problem.reached(problem.gap(logits, classes))
    rows = (~done).nonzero().squeeze(1)
    best = clean.detach().clone()
    distance = torch.where(done, 0.0, torch.inf).to(clean.dtype)
    best[rows], distance[rows], _ = _bisect(problem, best[rows], classes[rows])
    if targets is None and logits.shape[1] > 2 and len(rows):
        target, bound = _rival(problem, clean[rows], classes[rows], logits[rows])
        again = (bound < _NEARER * distance[rows]).nonzero().squeeze(1)
        rows = rows[again]
        x, length, _ = _bisect(replace(problem, sign=-1), clean[rows], target[again])
        _keep_nearer(best, distance, rows, x, length)
    return CWResult(best, distance, distance.isfinite())


class _Rival(NamedTuple):
    """The nearest other class to first order, and how near it is; shapes ``(batch,)``."""

    target: Tensor
    bound: Tensor


def _rival(problem: CWProblem, clean: Tensor, classes: Tensor, logits: Tensor) -> _Rival:
    others = logits.scatter(1, classes[:, None], -torch.inf)
    ranked = others.topk(min(_RANKED, logits.shape[1] - 1), dim=1).indices
    x = clean.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = problem.logits_fn(x)
        gaps = logits.gather(1, classes[:, None]) - logits.gather(1, ranked)
        totals = gaps.sum(0).unbind()
    slopes = [torch.autograd.grad(total, x, retain_graph=True)[0] for total in totals]
    steepness = torch.stack([slope.flatten(1).norm(dim=1) for slope in slopes], 1)
    bound, place = ((gaps.detach() + problem.search.confidence) / steepness).min(1)
    return _Rival(ranked.gather(1, place[:, None]).squeeze(1), bound)


def _bisect(problem: CWProblem, clean: Tensor, classes: Tensor) -> CWResult:
    """Find the smallest constant that succeeds, for each sample alone.

    A success with steps that turn out to be long beside the distance may be their noise:
    the same constant is tried again with shorter ones.
    """
    best, distance = clean.clone(), clean.new_full(clean.shape[:1], torch.inf)
    lower, upper, unit = (
        torch.zeros_like(distance),
        distance.clone(),
        problem.step_length(clean),
    )
    c = torch.full_like(distance, problem.search.constant)
    done = torch.zeros_like(distance, dtype=torch.bool)
    for _ in range(problem.search.constants):
        rows = (~done).nonzero().squeeze(1)
        if not len(rows):
            break
        lr = _STRIDE * distance[rows] / unit[rows]
        lr = lr.clamp_(max=problem.search.lr)
        x, length, succeeded = descend(problem, clean[rows], classes[rows], c[rows], lr)
        _keep_nearer(best, distance, rows, x, length)
        coarse = succeeded & (lr * unit[rows] > 2 * _STRIDE * distance[rows])
        lower[rows] = torch.where(succeeded, lower[rows], c[rows])
        upper[rows] = torch.where(succeeded & ~coarse, c[rows], upper[rows])
        following = torch.where(upper.isfinite(), (lower + upper) / 2, 10 * c)
        c[rows] = torch.where(coarse, c[rows], following[rows])
        done |= (lower >= _NARROW * upper) | (c > _LARGEST)
    _pull(problem, clean, classes, best, distance)
    return CWResult(best, distance, distance.isfinite())


def _pull(
    problem: CWProblem, clean: Tensor, classes: Tensor, best: Tensor, distance: Tensor
) -> None:
    """Move each adversarial image towards the clean one, as long as it stays adversarial.

    Adam's steps are as long near the boundary as far from it, and end beyond it.
    """
    rows = distance.isfinite().nonzero().squeeze(1)
    if not len(rows):
        return
    start, classes, way = clean[rows], classes[rows], best[rows] - clean[rows]
    short, long = torch.zeros_like(distance[rows]), torch.ones_like(distance[rows])
    for _ in range(_HALVINGS):
        share = (short + long) / 2
        x = (start + column(share, way) * way).clamp_(*problem.bounds)
        reached = problem.reached(problem.gap(problem.logits_fn(x), classes))
        length = torch.where(reached, (x - start).flatten(1).norm(dim=1), torch.inf)
        _keep_nearer(best, distance, rows, x, length)
        short, long = torch.where(reached, short, share), torch.where(reached, share, long)


def _keep_nearer(
    best: Tensor, distance: Tensor, rows: Tensor, x: Tensor, length: Tensor
) -> None:
    """Write images to their rows of ``best``, where they are nearer to the clean ones."""
    nearer = length < distance[rows]
    best[rows] = torch.where(column(nearer, x), x, best[rows])
    distance[rows] = torch.minimum(length, distance[rows])
