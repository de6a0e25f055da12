r"""HopSkipJump: an attack that sees decisions alone (Chen, Jordan & Wainwright, 2020).

https://arxiv.org/abs/1904.02144. Neither gradients nor scores are used, so what hides them
does not help a model. The walk goes along the decision boundary, from a misclassified image
far away to the clean one:

1. project: shrink the perturbation until the image is just misclassified;
2. estimate the normal of the boundary there from the decisions on random neighbours,

   .. math::
       v = \frac1B \sum_b (\phi(x + \delta u_b) - \bar\phi) \, u_b,
       \qquad \phi = \pm 1 \text{ (wrong, right)};
3. step by :math:`\xi = d / \sqrt t` in the direction of :math:`v`, halved until the image
   is misclassified, and project again.

Here :math:`u_b` are signs. Starts are noise and the image itself, changed beyond
recognition: a verdict must not depend on the other images of a batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, prod, sqrt

import torch
from torch import Tensor

from advnorm.attacks.classify import classify
from advnorm.attacks.targets import LogitsFn
from advnorm.draws import Draws, draws_of_call
from advnorm.threat import Threat

ROWS = 2048
"""Images in one pass, at most."""
QUERIES = 100
"""Neighbours of the first step; step t asks for sqrt(t) times as many."""
STARTS = 4
"""Classes that a walk comes from: the nearest start is not always the best."""
TRIAL = 3
"""Hops from each start, before the nearest one goes on alone."""
_HALVINGS = 14
"""Of a search between a right and a wrong image: finer than the neighbours are far."""
_NEAR = 0.3
"""The distance of a neighbour, in units of the L2 norm of the perturbation."""

Classify = Callable[[Tensor, Tensor], Tensor]
"""(images, labels) -> the class of each image; of a tie, one that is not the label."""


def hop_skip_jump(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 20,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Walk along the decision boundary towards the clean image (HopSkipJump).

    The nearest start of each of :data:`STARTS` classes is tried for :data:`TRIAL` hops, and
    the best of them goes on. A sample is done as soon as a misclassified image is inside
    the ball.

    Args:
        logits_fn: Maps inputs in the threat's bounds to logits; only the class counts.
        clean: Clean inputs in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``.
        threat: The set to search.
        steps: Hops along the boundary: about ``100 sqrt(t)`` decisions in the t-th.
        draws: The samples' random numbers; by default fresh ones at every call.
        generator: Where fresh ones come from; by default torch's global generator, which
            advances as in ``torch.rand``.

    Returns:
        Inputs in the threat's set, shape ``(batch, ...)``.
    """
    draws = draws_of_call(draws, generator, clean)
    task = _Task(_classifier(logits_fn), clean, labels, threat, draws)
    best = _Nearest(clean, threat)
    choices = _choices(task)
    for number in range(STARTS):
        start = _start(task, choices[number])
        _walk(task, start, best, range(1, min(TRIAL, steps) + 1), number)
    _walk(task, best.images.clone(), best, range(TRIAL + 1, steps + 1), STARTS)
    return threat.project(best.images, clean)


def count_queries(steps: int) -> int:
    """Return the largest number of queries per sample that a number of hops takes."""
    starts, each = 30, 2 * _HALVINGS  # candidates; the two searches of a hop
    hops = [*range(1, min(TRIAL, steps) + 1)] * STARTS + [*range(TRIAL + 1, steps + 1)]
    normals = sum(ceil(QUERIES * sqrt(hop)) for hop in hops)
    return normals + each * len(hops) + starts * (1 + _HALVINGS)


@dataclass(frozen=True)
class _Task:
    """The attacked samples, one per row."""

    classify: Classify
    clean: Tensor
    labels: Tensor
    threat: Threat
    draws: Draws

    def rows(self, rows: Tensor) -> "_Task":
        """Return some of the samples."""
        return replace(
            self, clean=self.clean[rows], labels=self.labels[rows], draws=self.draws[rows]
        )

    def wrong(self, images: Tensor) -> Tensor:
        """Tell which images are misclassified."""
        return self.classify(images, self.labels) != self.labels

    def distance(self, images: Tensor) -> Tensor:
        """Return how far images are from the clean ones."""
        return self.threat.distance(images, self.clean)


class _Nearest:
    """The nearest misclassified image of each sample; at an infinite distance none."""

    def __init__(self, clean: Tensor, threat: Threat) -> None:
        self.images = clean.clone()
        self.distance = torch.full_like(clean.flatten(1)[:, 0], torch.inf)
        self.eps = threat.eps

    def update(self, rows: Tensor, images: Tensor, distance: Tensor) -> None:
        """Keep what is nearer than before."""
        closer = distance < self.distance[rows]
        self.images[rows[closer]] = images[closer]
        self.distance[rows[closer]] = distance[closer]

    def outside(self) -> Tensor:
        """Return the rows that have no image in the ball yet."""
        return (self.distance > self.eps).nonzero().squeeze(1)


def _classifier(logits_fn: LogitsFn) -> Classify:
    """Return a function that queries decisions, in batches of a limited size."""

    @torch.no_grad()
    def ask(images: Tensor, labels: Tensor) -> Tensor:
        parts = zip(torch.split(images, ROWS), torch.split(labels, ROWS), strict=True)
        return torch.cat([classify(logits_fn(x), y) for x, y in parts])

    return ask


def _choices(task: _Task) -> Tensor:
    """Return which candidates to start from, nearest first, a class at most once.

    Shape ``(STARTS, batch)``; -1 where there is none.
    """
    distances, classes = [], []
    for candidate in _candidates(task):
        guess = task.classify(candidate, task.labels)
        distance = torch.full_like(task.clean.flatten(1)[:, 0], torch.inf)
        rows = (guess != task.labels).nonzero().squeeze(1)
        if len(rows):
            part = task.rows(rows)
            distance[rows] = part.distance(_shrink(part, candidate[rows]))
        distances.append(distance)
        classes.append(guess)
    left, guesses = torch.stack(distances), torch.stack(classes)
    chosen = []
    for _ in range(STARTS):
        distance, index = left.min(0)
        chosen.append(torch.where(distance.isfinite(), index, -1))
        same = guesses == guesses.gather(0, index[None])
        left = left.masked_fill(same, torch.inf)
    return torch.stack(chosen)


def _start(task: _Task, choice: Tensor) -> Tensor:
    """Return each sample's chosen candidate; the clean image where there is none."""
    start = task.clean.clone()
    for number, candidate in enumerate(_candidates(task)):
        rows = choice == number
        start[rows] = candidate[rows]
    return start


def _candidates(task: _Task) -> Iterator[Tensor]:
    """Yield images that may be of another class: the image changed, and noise."""
    clean, (low, high) = task.clean, task.threat.bounds
    draws, shape = task.draws.stream("start"), clean.shape[1:]
    yield clean
    for number in range(4):
        noise = draws.stream(number).uniform(*shape, dtype=clean.dtype)
        noise = low + (high - low) * noise
        yield clean + 0.5 * (noise - clean)
        yield noise
    yield (low + high) - clean
    for axis in range(1, clean.ndim):
        yield clean.flip(axis)
        yield clean.roll(max(1, clean.shape[axis] // 4), axis)
        yield clean.roll(-max(1, clean.shape[axis] // 4), axis)
    for number, value in enumerate((low, high)):
        yield torch.full_like(clean, value)
        yield _half(clean, value, draws.stream("half", number))
        yield _half(clean, value, draws.stream("other half", number))
    for number in range(4):
        corner = draws.stream("corner", number).bits(*shape) > 0
        yield torch.where(corner, low, high).to(clean)


def _half(clean: Tensor, value: float, draws: Draws) -> Tensor:
    """Fill the image on one side of a random line, through its flattened order."""
    width = clean[0].numel()
    cut = draws.integers(width, 1)
    places = torch.arange(width, device=clean.device)
    inside = ((places - cut) % width) < width // 2
    return torch.where(inside.view_as(clean), value, clean)


def _walk(task: _Task, x: Tensor, best: _Nearest, hops: range, stream: int) -> None:
    """Shrink a start to the boundary and hop along it, keeping what is nearest."""
    rows = best.outside()
    for hop in (0, *hops):
        rows = rows[torch.isin(rows, best.outside())]
        if hop == 0:
            rows = rows[task.rows(rows).wrong(x[rows])]
        if not len(rows):
            return
        part = task.rows(rows)
        part = replace(part, draws=part.draws.stream("hop", stream, hop))
        x[rows] = _shrink(part, _hop(part, x[rows], hop) if hop else x[rows])
        best.update(rows, x[rows], part.distance(x[rows]))


def _shrink(task: _Task, x: Tensor) -> Tensor:
    """Bisect the radius to which a misclassified image can be shrunk and stays one."""
    wrong = task.distance(x)
    right = torch.zeros_like(wrong)
    for _ in range(_HALVINGS):
        middle = (wrong + right) / 2
        success = task.wrong(task.threat.shrink(x, task.clean, middle))
        wrong = torch.where(success, middle, wrong)
        right = torch.where(success, right, middle)
    return task.threat.shrink(x, task.clean, wrong)


def _hop(task: _Task, x: Tensor, hop: int) -> Tensor:
    """Step along the estimated normal, away from the boundary into the wrong class."""
    direction = task.threat.direction(_normal(task, x, hop))
    length = _broadcast(task.distance(x) / sqrt(hop), x)
    result = x.clone()
    rows = torch.arange(len(x), device=x.device)
    for _ in range(_HALVINGS):
        tried = (x[rows] + length[rows] * direction[rows]).clamp(*task.threat.bounds)
        success = task.rows(rows).wrong(tried)
        result[rows[success]] = tried[success]
        rows = rows[~success]
        if not len(rows):
            break
        length = length / 2
    return result


def _normal(task: _Task, x: Tensor, hop: int) -> Tensor:
    """Estimate the normal of the boundary, towards the wrong side, from decisions."""
    count, shape = ceil(QUERIES * sqrt(hop)), x.shape[1:]
    delta = (x - task.clean).flatten(1).norm(dim=1) * _NEAR / sqrt(prod(shape))
    parts = []
    for rows in torch.split(torch.arange(len(x), device=x.device), max(1, ROWS // count)):
        signs = torch.where(task.draws[rows].bits(count, *shape) > 0, 1.0, -1.0).to(x)
        near = x[rows][:, None] + _broadcast(delta[rows], signs) * signs
        near = near.clamp_(*task.threat.bounds)
        labels = task.labels[rows].repeat_interleave(count)
        wrong = task.classify(near.flatten(0, 1), labels) != labels
        side = torch.where(wrong, 1.0, -1.0).to(x).view(len(rows), count)
        mean = side.mean(1, keepdim=True)
        weight = torch.where(mean.abs() < 1, side - mean, side)
        taken = (near - x[rows][:, None]).flatten(2)
        parts.append(torch.einsum("rq,rqp->rp", weight, taken).view(-1, *shape))
    return torch.cat(parts)


def _broadcast(value: Tensor, like: Tensor) -> Tensor:
    return value.view(-1, *(1,) * (like.ndim - 1))
