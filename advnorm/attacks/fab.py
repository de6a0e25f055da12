r"""The fast adaptive boundary attack (Croce & Hein, 2020, arXiv:1907.02044), targeted.

It looks for the smallest change of the class, whatever the radius, by stepping onto the
linearized boundary of the label y and a target s, with a pull towards the clean image
:math:`x_0`. With :math:`P(z)` the projection of z onto the plane
:math:`\{z : f_s(x) - f_y(x) + \langle \nabla (f_s - f_y)(x), z - x \rangle = 0\}` inside
the box, :math:`d = P(x) - x` and :math:`d_0 = P(x_0) - x_0`, one step is

.. math::
    \alpha &= \min\bigl(\|d\| / (\|d\| + \|d_0\|), \alpha_{max}\bigr) \\
    x &\leftarrow \Pi_{box}\bigl((1 - \alpha)(x + \eta d) + \alpha (x_0 + \eta d_0)\bigr) \\
    x &\leftarrow x_0 + \beta (x - x_0) \quad \text{if } x \text{ is adversarial}

The targets are the wrong classes, those with the largest clean logits first by default.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.minimum_norm import NearestAdversarial
from advnorm.attacks.parallel_runs import drop_siblings, runs_together
from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.projections import project_l2, project_linf
from advnorm.attacks.sparse_projections import project_l1
from advnorm.attacks.target_order import TargetOrder, likeliest
from advnorm.attacks.targets import LogitsFn, hard_labels
from advnorm.draws import Draws
from advnorm.threat import Bounds, Threat

ALPHA_MAX, ETA, BETA = 0.1, 1.05, 0.9  # the published bias, overshoot and backward step
Projection = Callable[[Tensor, Tensor, Tensor, Bounds], Tensor]


class _NormGeometry(NamedTuple):
    """The distance of a norm, and its projection onto a plane."""

    length: Callable[[Tensor], Tensor]
    project: Projection


def _linf_length(change: Tensor) -> Tensor:
    return change.abs().amax(1, keepdim=True)


def _l2_length(change: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(change, dim=1, keepdim=True)
    return length


def _l1_length(change: Tensor) -> Tensor:
    return change.abs().sum(1, keepdim=True)


_NORMS = {
    "linf": _NormGeometry(_linf_length, project_linf),
    "l2": _NormGeometry(_l2_length, project_l2),
    "l1": _NormGeometry(_l1_length, project_l1),
}


def fab_t(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 100,
    targets: int = 9,
    order: TargetOrder = likeliest,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """FAB, targeted: minimum-norm boundary attack (Croce & Hein, 2020).

    An image is finished once an adversarial image inside the ball is known.

    The defaults are those of AutoAttack (Croce & Hein, 2020b).

    Args:
        logits_fn: Maps inputs in the threat's bounds to logits.
        clean: Clean inputs in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: The set to search, of norm ``"linf"``, ``"l2"`` or ``"l1"``.
        steps: Number of steps for each target.
        targets: Number of target classes, at most all the wrong ones.
        order: Which wrong classes come first.
        draws: Not used, as nothing here is random; every attack takes it.
        generator: Not used either.

    Returns:
        An admissible misclassified input where one was found, else the clean one.

    Raises:
        NonFiniteGradientError: If a logit or a gradient held NaN or infinity.
    """
    search = _search(
        logits_fn, clean, labels, threat, steps, targets, enough=threat.eps, order=order
    )
    inside = (search.distances <= threat.eps).view(-1, *(1,) * (clean.ndim - 1))
    return torch.where(inside, search.images, clean)


def fab_distance(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 100,
    targets: int = 9,
) -> Tensor:
    """Return how far the nearest adversarial input that FAB finds is, shape ``(batch,)``.

    Of the threat, the norm and the bounds count, not the radius. The distance is 0 where
    the clean input is misclassified, and infinite where no example was reached.
    """
    return _search(logits_fn, clean, labels, threat, steps, targets, enough=0.0).distances


def fab_nearest(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 100,
    targets: int = 9,
    enough: float = 0.0,
) -> NearestAdversarial:
    """Return the nearest adversarial inputs with their distances, as FAB finds them."""
    return NearestAdversarial(
        *_search(logits_fn, clean, labels, threat, steps, targets, enough=enough)
    )


class _NearestExamples(NamedTuple):
    """The nearest adversarial inputs so far and their distances, infinite without one."""

    images: Tensor
    distances: Tensor


class _Batch(NamedTuple):
    """The attempts that still run: row, image number, clean, iterate, label, target."""

    rows: Tensor
    owner: Tensor
    clean: Tensor
    x: Tensor
    labels: Tensor
    target: Tensor

    def take(self, keep: Tensor) -> "_Batch":
        return _Batch(*(part[keep] for part in self))


def _search(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    steps: int,
    targets: int,
    *,
    enough: float,
    order: TargetOrder = likeliest,
) -> _NearestExamples:
    """Run FAB against each target, on the samples with no distance <= ``enough`` yet."""
    flat, labels, norm = clean.detach().flatten(1), hard_labels(labels), _NORMS[threat.name]

    def logits_of(x: Tensor) -> Tensor:
        return logits_fn(x.view(-1, *clean.shape[1:]))

    with torch.no_grad():
        logits, ranked = order(logits_fn, clean.detach(), labels, threat)
        best = torch.where(logits.argmax(1) == labels, torch.inf, 0.0).to(flat.dtype)
        nearest_so_far = _NearestExamples(flat.clone(), best)
        waiting = range(min(targets, ranked.shape[1]))
        left = (best > enough).nonzero().squeeze(1)
        while len(waiting) and len(left):
            chosen = runs_together(waiting, len(left))
            owner, aimed = left.repeat(len(chosen)), ranked[left][:, chosen].T.flatten()
            rows = torch.arange(len(owner), device=owner.device)
            start = flat[owner]
            batch = _Batch(rows, owner, start, start, labels[owner], aimed)
            tried = _NearestExamples(
                start.clone(), start.new_full((len(owner),), torch.inf)
            )
            for _ in range(steps):
                if not len(batch.rows):
                    break
                x = _step(logits_of, batch, norm, threat.bounds)
                wrong = logits_of(x).argmax(1) != batch.labels
                batch = _keep(tried, batch._replace(x=x), wrong, norm, enough)
            _keep_nearest(nearest_so_far, tried, left)
            left = left[nearest_so_far.distances[left] > enough]
            waiting = waiting[len(chosen) :]
    return _NearestExamples(nearest_so_far.images.view_as(clean), nearest_so_far.distances)


def _keep_nearest(
    nearest_so_far: _NearestExamples, tried: _NearestExamples, left: Tensor
) -> None:
    """Keep the nearest of each image's attempts, if it is nearer than all before."""
    nearest, pick = tried.distances.view(-1, len(left)).min(0)
    nearer = (nearest < nearest_so_far.distances[left]).nonzero().squeeze(1)
    nearest_so_far.distances[left[nearer]] = nearest[nearer]
    nearest_so_far.images[left[nearer]] = tried.images[pick[nearer] * len(left) + nearer]


def _step(
    logits_of: LogitsFn, batch: _Batch, norm: _NormGeometry, bounds: Bounds
) -> Tensor:
    """Step onto the linearized boundary and a little beyond, biased to the clean image."""
    x, clean = batch.x, batch.clean
    gap, w = _linearize(logits_of, batch)
    b: Tensor = torch.linalg.vecdot(w, x, dim=1) - gap
    d = norm.project(x, w, b, bounds).sub_(x)
    d0 = norm.project(clean, w, b, bounds).sub_(clean)
    length, length0 = (norm.length(change).clamp_(min=1e-8) for change in (d, d0))
    alpha = (length / (length + length0)).clamp_(max=ALPHA_MAX)
    ahead = d.mul_(ETA).add_(x)
    return ahead.lerp_(d0.mul_(ETA).add_(clean), alpha).clamp_(*bounds)


def _linearize(logits_of: LogitsFn, batch: _Batch) -> tuple[Tensor, Tensor]:
    """Return the target's lead over the label at the iterates, and its gradient."""
    x = batch.x.detach().requires_grad_()
    pair = torch.stack([batch.target, batch.labels], 1)
    with torch.enable_grad():
        ahead, behind = logits_of(x).gather(1, pair).unbind(1)
        gap = ahead - behind
        (w,) = torch.autograd.grad(gap.sum(), x)
    if not (gap.detach().sum() + w.sum()).isfinite():
        raise NonFiniteGradientError(
            "FAB met a logit or a gradient that is not finite: the model's logits "
            "overflow, or its weights or statistics are not numbers"
        )
    return gap.detach(), w


def _keep(
    nearest_so_far: _NearestExamples,
    batch: _Batch,
    wrong: Tensor,
    norm: _NormGeometry,
    enough: float,
) -> _Batch:
    """Keep the nearest successes, step back from them, and drop samples that are done."""
    change = batch.x - batch.clean
    distance = norm.length(change).squeeze(1)
    nearer = (
        (wrong & (distance < nearest_so_far.distances[batch.rows])).nonzero().squeeze(1)
    )
    nearest_so_far.images[batch.rows[nearer]] = batch.x[nearer]
    nearest_so_far.distances[batch.rows[nearer]] = distance[nearer]
    backward = wrong.to(change.dtype).mul_(BETA - 1)[:, None]
    batch = batch._replace(x=batch.x.addcmul(change, backward))
    done = (nearest_so_far.distances[batch.rows] <= enough).nonzero().squeeze(1)
    return batch.take(drop_siblings(batch.owner, done)) if len(done) else batch
