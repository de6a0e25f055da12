r"""How far does batch norm tilt a boundary in the plane? The toy problem of galloway2019.

Two Gaussians whose means differ along the first axis, so that :math:`w^* = \nu^0 - \nu^1`
is that axis, with a correlated second axis of small variance. Gradient descent at a
constant learning rate of 0.1 for 1,000 epochs, with and without batch norm (Fig. 1). The
paper reports 66.7 degrees with batch norm and about 0 without. The Bayes-optimal boundary,
:math:`w = \Sigma^{-1}(\nu^1 - \nu^0)`, is at 78.7 degrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.data.toy import gaussian_points
from advnorm.diagnosis.common import QUIET
from advnorm.diagnosis.linear_descent import (
    LinearClassifier,
    angle,
    batch_moments,
    descend,
    normalize,
)
from advnorm.diagnosis.registry import Count, Counts, Positive, question
from advnorm.diagnosis.tilt import initial_classifier
from advnorm.draws import Draws
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

PUBLISHED = 66.7
"""Degrees, galloway2019 Figure 1."""
BAYES = 78.69
"""Degrees of the Bayes-optimal boundary."""


@dataclass(frozen=True)
class ToyOptions:
    """The toy problem; the paper does not state the fields from ``c`` on."""

    samples: int = 1000
    lr: float = 0.1
    epochs: int = 1000
    c: float = 1e-5
    batch_size: int = 0
    """Samples per step; 0 for all of them."""
    scale: float = 1.0
    """Of PyTorch's initialization; 0 starts at zero."""


class ToyAngles(NamedTuple):
    """Degrees from the nearest-centroid classifier, one per seed."""

    plain: Tensor
    normalized: Tensor


def measure_angles(toy: ToyOptions, seeds: Sequence[int]) -> ToyAngles:
    """Train on the points with and without batch norm, one run per seed."""
    drawings = [gaussian_points(toy.samples, seed=seed) for seed in seeds]
    points = torch.stack([drawing[0] for drawing in drawings])
    signs = torch.stack([2.0 * drawing[1].double() - 1 for drawing in drawings])
    lines = [initial_classifier(2, seed, points) for seed in seeds]
    start = LinearClassifier(
        toy.scale * torch.stack([line.weight for line in lines]),
        toy.scale * torch.stack([line.bias for line in lines]),
    )
    here = batch_moments(points)
    axis = torch.tensor([1.0, 0.0], dtype=torch.float64)
    plain = _train(toy, points, signs, start, norm=False)
    behind = _train(toy, points, signs, start, norm=True)
    scaled = behind.weight * (here.var + toy.c).rsqrt()
    return ToyAngles(angle(plain.weight, axis), angle(scaled, axis))


def _train(
    toy: ToyOptions, points: Tensor, signs: Tensor, start: LinearClassifier, *, norm: bool
) -> LinearClassifier:
    if not toy.batch_size or toy.batch_size >= toy.samples:
        x = normalize(points, batch_moments(points), toy.c) if norm else points
        return descend(x, signs, start, lr=toy.lr, steps=toy.epochs)
    line, count = start, toy.samples - toy.samples % toy.batch_size
    for epoch in range(toy.epochs):
        order = torch.argsort(
            Draws.of(epoch, torch.arange(len(points))).stream("toy").bits(toy.samples), 1
        )
        for rows in torch.split(order[:, :count], toy.batch_size, 1):
            part = points.gather(1, rows[..., None].expand(-1, -1, 2))
            x = normalize(part, batch_moments(part), toy.c) if norm else part
            line = descend(x, signs.gather(1, rows), line, lr=toy.lr, steps=1)
    return line


@question("toy")
def toy(
    model: nn.Module | None,
    images: Tensor | None,
    labels: Tensor | None,
    *,
    threat: Threat | None = None,
    seeds: Count = 20,
    samples: Counts = (100, 1000),
    epochs: Count = 1000,
    lr: Positive = 0.1,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Tilt of the boundary of a two-dimensional toy problem (galloway2019 Fig. 1).

    It draws its own points; model and images are not used.
    """
    results = {}
    for count, n in enumerate(samples, 1):
        results[n] = measure_angles(ToyOptions(n, lr=lr, epochs=epochs), range(seeds))
        progress.update(count, len(samples), f"{n} samples")
    numbers = {}
    for n, both in results.items():
        numbers[f"batch norm, {n} samples: mean"] = float(both.normalized.mean())
        numbers[f"batch norm, {n} samples: smallest"] = float(both.normalized.min())
        numbers[f"batch norm, {n} samples: largest"] = float(both.normalized.max())
        numbers[f"no norm, {n} samples: mean"] = float(both.plain.mean())
    ranked = tuple(map(float, range(1, seeds + 1)))
    lines = {f"batch norm, {n} samples": both.normalized for n, both in results.items()}
    lines |= {f"no norm, {n} samples": both.plain for n, both in results.items()}
    lines["published, batch norm"] = torch.full((seeds,), PUBLISHED)
    lines["Bayes-optimal"] = torch.full((seeds,), BAYES)
    return Diagnosis(
        question="toy",
        source="galloway2019 Fig. 1",
        reading="Angles between the boundary of the two-dimensional toy and the "
        "nearest-centroid classifier, a point a seed, in rising order: behind batch norm "
        "they lie near the Bayes-optimal boundary, without it near 0; the paper prints "
        f"{PUBLISHED} degrees behind batch norm.",
        numbers=numbers,
        settings={"seeds": seeds, "epochs": epochs, "lr": lr},
        panels=(
            Panel(
                kind="lines",
                title="Tilt of the toy",
                x="seeds, by angle",
                y="angle, degrees",
                series=tuple(
                    Series(name=name, x=ranked, y=tuple(line.sort().values.tolist()))
                    for name, line in lines.items()
                ),
            ),
        ),
    )
