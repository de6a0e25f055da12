r"""What the minimum-norm attacks share: the problem, the nearest class, the shortening.

A minimum-norm attack looks for

.. math:: \min_{x'} \|x' - x\|_p \quad \text{s.t.} \quad \arg\max_k f_k(x') \ne y

whatever the radius. A descent that follows the leading wrong class ends at the boundary of
that class, which need not be the nearest one. So a second descent has the class as its
target whose linearized boundary is nearest (as in :mod:`advnorm.attacks.cw`), where this
promises a nearer image.

At the end, a few steps go from the clean image onto the boundary, linearized at the nearest
image so far (the step of DeepFool and FAB, with the box); and a change is shortened, or in
L0 made sparser, as far as the image stays misclassified: features that matter least are
left as they are, the others moved on to the end of the box where that helps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks.pgd import NonFiniteGradientError
from advnorm.attacks.projections import project_l2, project_linf
from advnorm.attacks.sparse_projections import (
    feature_gains,
    move_features,
    project_l0,
    project_l1,
)
from advnorm.attacks.targets import LogitsFn, hard_labels
from advnorm.threat import Bounds, Threat

_PROJECTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Bounds], Tensor]] = {
    "linf": project_linf,
    "l2": project_l2,
    "l1": project_l1,
    "l0": project_l0,
}
_RANKED = 9  # classes whose linearized boundary is looked at, by their logits
_NEARER = 0.995  # a class this much nearer, to first order, is worth a search
_BOUNDARY_STEPS, _BEYOND = 4, 1e-3
_DROPS = 40  # attempts to leave one feature as it is
_HALVINGS = 10  # of the way from the clean image to the adversarial one


class NearestAdversarial(NamedTuple):
    """The nearest adversarial images and their distances, infinite where there is none."""

    images: Tensor
    distances: Tensor

    @classmethod
    def unknown(cls, clean: Tensor) -> "NearestAdversarial":
        """Return the beginning of a search: clean images, at infinite distance."""
        return cls(clean.clone(), clean.new_full((len(clean),), torch.inf))

    def unfinished(self, rows: Tensor, enough: float) -> Tensor:
        """Return which of these rows need a nearer image than is known."""
        return (self.distances[rows] > enough).nonzero().squeeze(1)

    def inside(self, clean: Tensor, threat: Threat) -> Tensor:
        """Return the images that are in the ball, and the clean ones elsewhere."""
        near = column(self.distances <= threat.eps, clean)
        return torch.where(near, self.images, clean)

    def keep(self, rows: Tensor, x: Tensor, distance: Tensor, wrong: Tensor) -> None:
        """Write misclassified images to their rows, in place, where they are nearer."""
        nearer = (wrong & (distance < self.distances[rows])).nonzero().squeeze(1)
        self.images[rows[nearer]] = x[nearer]
        self.distances[rows[nearer]] = distance[nearer]


class Slope(NamedTuple):
    """The lead of a wrong class over the label at some points, and its gradient."""

    lead: Tensor
    grad: Tensor
    wrong: Tensor
    """Whether the points are misclassified, towards any class."""


@dataclass(frozen=True)
class MinimumNormProblem:
    """A model and a norm; an image is finished once its distance is ``enough``."""

    logits_fn: LogitsFn
    threat: Threat
    enough: float

    def slope(self, x: Tensor, labels: Tensor, targets: Tensor | None) -> Slope:
        """Return the lead of the targets, or of the best wrong class, and its gradient."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            logits = self.logits_fn(x)
            own = logits.gather(1, labels[:, None]).squeeze(1)
            others = logits.scatter(1, labels[:, None], -torch.inf)
            rival = others.argmax(1) if targets is None else targets
            lead = logits.gather(1, rival[:, None]).squeeze(1) - own
            (grad,) = torch.autograd.grad(lead.sum(), x)
        if not (lead.detach().sum() + grad.sum()).isfinite():
            raise NonFiniteGradientError(
                "the attack met a logit or a gradient that is not finite: the model's "
                "logits overflow, or its weights or statistics are not numbers"
            )
        return Slope(lead.detach(), grad, is_wrong(logits.detach(), labels))

    def wrong(self, x: Tensor, labels: Tensor) -> Tensor:
        """Tell which points are misclassified."""
        return is_wrong(self.logits_fn(x), labels)


Descent = Callable[[MinimumNormProblem, Tensor, Tensor, Tensor | None], NearestAdversarial]
"""``descend(problem, clean, labels, targets)``, from correctly classified images."""


def refuse_other_norm(threat: Threat, norm: str, does: str) -> None:
    """Refuse the ball of a norm that an attack does not minimize."""
    if threat.name != norm:
        raise ValueError(
            f"{does} and says nothing about a {threat.name} ball: use an "
            f"{norm.upper()} threat, or fmn"
        )


def is_wrong(logits: Tensor, labels: Tensor) -> Tensor:
    """Tell which predictions are wrong by more than rounding, as any other pass says."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    slack = 8 * torch.finfo(logits.dtype).eps * logits.abs().amax(1)
    return others - own > slack


def column(values: Tensor, like: Tensor) -> Tensor:
    """Shape one value per sample to broadcast against images."""
    return values.view(-1, *(1,) * (like.ndim - 1))


@torch.no_grad()
def search_nearest(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    descend: Descent,
    *,
    enough: float = 0.0,
    promise: float = _NEARER,
) -> NearestAdversarial:
    """Run a descent, another one towards the nearest class, and shorten the changes.

    The second one runs where to first order its class is nearer than ``promise`` times what
    is known; in L0 always. Of the threat, the norm and the bounds count, not the radius.
    The distance is 0 where the clean image is misclassified.
    """
    clean, labels = clean.detach(), hard_labels(labels)
    problem = MinimumNormProblem(logits_fn, threat, enough)
    if not len(clean):
        return NearestAdversarial(clean.clone(), clean.new_zeros(0))
    logits = logits_fn(clean)
    wrong = is_wrong(logits, labels)
    best = NearestAdversarial(clean.clone(), torch.where(wrong, 0.0, torch.inf).to(clean))
    rows = (~wrong).nonzero().squeeze(1)
    if not len(rows):
        return best
    x, y = clean[rows], labels[rows]
    targets, point = _nearest_class(problem, x, y, logits[rows])
    if threat.name == "l0":
        _keep_corners(problem, best, rows, x, y, targets)
    first = descend(problem, x, y, None)
    best.keep(rows, first.images, first.distances, first.distances.isfinite())
    promised = threat.distance(point, x)
    again = best.distances[rows] > enough
    if threat.name != "l0":  # there counts are few, and a second descent pays anyway
        again &= promised < promise * best.distances[rows]
    again &= torch.tensor(logits.shape[1] > 2, device=again.device)
    if bool(again.any()):
        second = descend(problem, x[again], y[again], targets[again])
        best.keep(rows[again], second.images, second.distances, second.distances.isfinite())
    _step_to_boundary(problem, best, rows, x, y)
    _shorten(problem, best, clean, labels)
    if threat.name == "l0":
        _drop_features(problem, best, rows, x, y)
    return best


def _nearest_class(
    problem: MinimumNormProblem, clean: Tensor, labels: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the class whose linearized boundary is nearest, and the point on it."""
    others = logits.scatter(1, labels[:, None], -torch.inf)
    ranked = others.topk(min(_RANKED, logits.shape[1] - 1), dim=1).indices
    nearest, best, points = None, ranked[:, 0], clean.clone()
    for rank in range(ranked.shape[1]):
        lead, grad, _ = problem.slope(clean, labels, ranked[:, rank])
        point = _project(problem, clean, clean, lead, grad)
        gained = torch.linalg.vecdot(grad.flatten(1), (point - clean).flatten(1), dim=1)
        reached = gained + lead >= -1e-3 * lead.abs()
        distance = problem.threat.distance(point, clean).masked_fill(~reached, torch.inf)
        nearer = distance < (torch.inf if nearest is None else nearest)
        nearest = distance if nearest is None else torch.minimum(nearest, distance)
        best = torch.where(nearer, ranked[:, rank], best)
        points = torch.where(column(nearer, clean), point, points)
    assert nearest is not None
    unreached = column(nearest.isinf(), clean)  # promise nothing there
    ends = problem.threat.bounds[1] - problem.threat.bounds[0]
    return best, torch.where(unreached, clean + ends, points)


def _project(
    problem: MinimumNormProblem, clean: Tensor, x: Tensor, lead: Tensor, grad: Tensor
) -> Tensor:
    """Return the nearest point where the lead, linearized at x, would be 0."""
    w = grad.flatten(1)
    b: Tensor = torch.linalg.vecdot(w, x.flatten(1), dim=1) - lead
    project = _PROJECTIONS[problem.threat.name]
    return project(clean.flatten(1), w, b, problem.threat.bounds).view_as(clean)


def _step_to_boundary(
    problem: MinimumNormProblem,
    best: NearestAdversarial,
    rows: Tensor,
    clean: Tensor,
    labels: Tensor,
) -> None:
    """Step from the clean image onto the boundary, linearized at the best image so far.

    A little beyond it: by a thousandth of what is missing at the clean image.
    """
    left = best.distances[rows].isfinite() & (best.distances[rows] > problem.enough)
    rows, clean, labels = rows[left], clean[left], labels[left]
    for _ in range(_BOUNDARY_STEPS if len(rows) else 0):
        x = best.images[rows]
        lead, grad, _ = problem.slope(x, labels, None)
        moved = torch.linalg.vecdot(grad.flatten(1), (x - clean).flatten(1), dim=1)
        beyond = _BEYOND * (moved - lead).clamp(min=0)
        point = _project(problem, clean, x, lead - beyond, grad)
        wrong = problem.wrong(point, labels)
        best.keep(rows, point, problem.threat.distance(point, clean), wrong)


def _keep_corners(
    problem: MinimumNormProblem,
    best: NearestAdversarial,
    rows: Tensor,
    clean: Tensor,
    labels: Tensor,
    targets: Tensor,
) -> None:
    """Keep the sparsest corner along one gradient: features to the end of the box.

    Bisection over their number, the features that gain most first. For a linear model it
    is the solution.
    """
    flat, bounds = clean.flatten(1), problem.threat.bounds
    towards = problem.slope(clean, labels, targets).grad.flatten(1)
    _, order = feature_gains(flat, towards, bounds)
    few = torch.zeros(len(clean), dtype=torch.long, device=clean.device)
    many = torch.full_like(few, flat.shape[1])
    for _ in range(flat.shape[1].bit_length() + 1):
        middle = (few + many) // 2
        middle = torch.where(many - few <= 1, many, middle)
        x = move_features(flat, towards, order, middle, bounds).view_as(clean)
        wrong = problem.wrong(x, labels)
        best.keep(rows, x, problem.threat.distance(x, clean), wrong)
        few = torch.where(wrong, few, torch.minimum(middle, many - 1))
        many = torch.where(wrong, middle, many)


def _shorten(
    problem: MinimumNormProblem, best: NearestAdversarial, clean: Tensor, labels: Tensor
) -> None:
    """Shorten changes as far as the image stays misclassified; make them sparser in L0."""
    finite = best.distances.isfinite() & (best.distances > problem.enough)
    rows = finite.nonzero().squeeze(1)
    if not len(rows):
        return
    x0, y = clean[rows], labels[rows]
    change = best.images[rows] - x0
    if problem.threat.name == "l0":
        grad = problem.slope(best.images[rows], y, None).grad
        importance = torch.where(change != 0, (grad * change), torch.inf).flatten(1)
        place = importance.argsort(dim=1, stable=True).argsort(dim=1).view_as(change)
        total = problem.threat.distance(best.images[rows], x0)

        def shortened(share: Tensor) -> Tensor:
            dropped = column(((1 - share) * total).ceil(), change)
            return torch.where(place < dropped, x0, x0 + change)
    else:

        def shortened(share: Tensor) -> Tensor:
            return (x0 + column(share, change) * change).clamp_(*problem.threat.bounds)

    short = torch.zeros(len(rows), dtype=clean.dtype, device=clean.device)
    long = torch.ones_like(short)
    for _ in range(_HALVINGS):
        share = (short + long) / 2
        x = shortened(share)
        wrong = problem.wrong(x, y)
        best.keep(rows, x, problem.threat.distance(x, x0), wrong)
        short, long = torch.where(wrong, short, share), torch.where(wrong, share, long)


def _drop_features(
    problem: MinimumNormProblem,
    best: NearestAdversarial,
    rows: Tensor,
    clean: Tensor,
    labels: Tensor,
) -> None:
    """Leave single features as they are, those first that matter least to the lead."""
    left = best.distances[rows].isfinite() & (best.distances[rows] > problem.enough)
    rows, clean, labels = rows[left], clean[left], labels[left]
    x, tried = best.images[rows].clone(), torch.zeros_like(clean, dtype=torch.bool)
    low, high = problem.threat.bounds
    for _ in range(_DROPS):
        waiting = ((x != clean) & ~tried).flatten(1).any(1).nonzero().squeeze(1)
        if not len(waiting):
            break
        here, start, y = x[waiting], clean[waiting], labels[waiting]
        grad = problem.slope(here, y, None).grad
        ends = torch.where(grad > 0, high, torch.where(grad < 0, low, here))
        pushed = torch.where(here != start, ends, here)
        matters = grad * (pushed - start)
        matters = matters.masked_fill((here == start) | tried[waiting], torch.inf)
        place = matters.flatten(1).argmin(1, keepdim=True)
        drop = torch.zeros_like(matters, dtype=torch.bool).flatten(1)
        drop = drop.scatter_(1, place, True).view_as(matters)
        tried[waiting] |= drop
        for candidate in (here, pushed):
            sparser = torch.where(drop, start, candidate)
            wrong = problem.wrong(sparser, y)
            distance = problem.threat.distance(sparser, start)
            best.keep(rows[waiting], sparser, distance, wrong)
            x[waiting] = torch.where(column(wrong, sparser), sparser, x[waiting])
