"""Planting: the points around a sample, their features, and readouts that separate one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.attacks import classify
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.engine import logits_of
from advnorm.evaluation.last_layer import recorded
from advnorm.evaluation.readouts import (
    FittedReadout,
    Readouts,
    fit_readout,
    readouts_in_place,
)
from advnorm.threat import Threat

GAP = 0.05
"""Between inner points and the boundary, in units of eps (the authors' value)."""
_GROWTHS = 12


class PointCounts(NamedTuple):
    """How many points are drawn for each sample."""

    inner: int
    random: int


CHEAP, FULL = PointCounts(128, 128), PointCounts(999, 200)
"""Of every evaluation, and of an audit: the second has the paper's numbers."""


class Plants(NamedTuple):
    """What was planted."""

    readouts: Readouts | None
    """``None`` where there are no plants."""
    rows: Tensor
    """Of the samples at which an example could be planted."""
    at_random: int
    """How many of these random sampling solves."""


@dataclass(frozen=True)
class Planter:
    """Plants an adversarial example at each sample of a batch."""

    model: nn.Module
    layer: nn.Linear
    """The model's last linear layer."""
    threat: Threat
    points: PointCounts
    classes: int
    seed: int = 0
    batch_size: int = 250

    def plant(self, batch: Batch) -> Plants:
        """Fit a readout for each sample, and keep those that work.

        A plant counts if the whole model with the readout in place predicts the label on
        the clean image, and the planted class on the planted one.
        """
        fits: list[FittedReadout] = []
        images, margins, at_random, rows = [], [], [], []
        for row in range(len(batch.images)):
            points = self._points(batch, row)
            features, outputs = self._features(points)
            last = 1 + self.points.inner
            fit = fit_readout(features[:last], features[last])
            if fit is None:
                continue
            reached = (features[last + 1 :].double() - fit.mean) @ fit.weight
            fits.append(fit)
            rows.append(row)
            images.append(points[last])
            at_random.append((reached > fit.threshold).any())
            margins.append(_margin(outputs[0]))
        if not rows:
            return Plants(None, torch.zeros(0, dtype=torch.long), 0)
        chosen = torch.tensor(rows, device=batch.images.device)
        tested = Batch(*(tensor[chosen] for tensor in batch))
        readouts = self._readouts(tested, fits, torch.stack(margins).median())
        valid = self._are_planted(tested, torch.stack(images), readouts)
        solved = int((torch.stack(at_random) & valid).sum())
        return Plants(readouts[valid], chosen[valid], solved)

    def _points(self, batch: Batch, row: int) -> Tensor:
        """Return the clean image, inner points, the planted one, and random points."""
        clean, samples = batch.images[row : row + 1], batch.samples[row : row + 1]
        key = int(Draws.of(self.seed, samples).keys)

        def draw(name: str, count: int) -> tuple[Tensor, Draws]:
            numbers = torch.arange(count, device=clean.device)
            many = clean.expand(count, *clean.shape[1:])
            return many, Draws.of(key, numbers).stream("planted", name)

        inside, ball = self.threat.scaled(1 - GAP), self.threat
        inner, random = self.points.inner // 2, self.points.random // 2
        return torch.cat(
            [
                clean,
                inside.sample(*draw("inner", inner)),
                on_boundary(inside, *draw("inner boundary", self.points.inner - inner)),
                on_boundary(ball, *draw("plant", 1)),
                ball.sample(*draw("random", random)),
                on_boundary(ball, *draw("random boundary", self.points.random - random)),
            ]
        )

    def _features(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input and the output of the last layer."""
        logits_fn, features, outputs = logits_of(self.model), [], []
        with recorded(self.layer) as seen, torch.no_grad():
            for part in torch.split(points, self.batch_size):
                logits_fn(part)
                features.append(seen.features)
                outputs.append(seen.outputs)
        return torch.cat(features), torch.cat(outputs)

    def _readouts(
        self, batch: Batch, fits: Sequence[FittedReadout], margin: Tensor
    ) -> Readouts:
        """Put fits together, with logits about as far apart as those of the model."""
        kind = batch.images.dtype
        weights, means, thresholds, lowest = (
            torch.stack([getattr(fit, name) for fit in fits]).to(kind)
            for name in FittedReadout._fields
        )
        # the clean image is an inner point: d is at least the lowest there
        scales = margin.to(kind).clamp(min=torch.finfo(kind).tiny) / lowest.abs()
        return Readouts(
            anchors=batch.images.flatten(1),
            weights=weights,
            means=means,
            thresholds=thresholds,
            labels=batch.labels,
            targets=(batch.labels + 1) % self.classes,
            scales=scales,
            floors=-scales * lowest.abs(),
        )

    def _are_planted(self, batch: Batch, plants: Tensor, readouts: Readouts) -> Tensor:
        """Tell for which samples the model with its readout answers as it should."""
        valid = self.threat.contains(plants, batch.images)
        logits_fn = logits_of(self.model)
        cases = (batch.images, readouts.labels), (plants, readouts.targets)
        with readouts_in_place(self.model, self.layer, readouts), torch.no_grad():
            for images, wanted in cases:
                parts = torch.split(images, self.batch_size)
                logits = torch.cat([logits_fn(part) for part in parts])
                valid &= classify(logits, wanted) == wanted
                valid &= logits.isfinite().all(1)
        return valid


def on_boundary(threat: Threat, clean: Tensor, draws: Draws) -> Tensor:
    """Draw one point on the boundary of each ball: a corner in Linf.

    In L2 and L1 the change is made longer where the box cuts it, so that it has the whole
    length where it can have it. In L0 as many features change as may.
    """
    if threat.name == "l0":
        return threat.sample(clean, draws)
    noise = draws.normal(*clean.shape[1:], dtype=clean.dtype)
    if threat.name == "linf":
        return threat.project(clean + threat.eps * threat.direction(noise), clean)
    low, high = threat.bounds
    change, tiny = noise * (high - low), torch.finfo(clean.dtype).tiny
    for _ in range(_GROWTHS):
        length = threat.distance((clean + change).clamp(low, high), clean).clamp(min=tiny)
        change = change * (threat.eps / length).view(-1, *(1,) * (clean.ndim - 1))
    return threat.project((clean + change).clamp(low, high), clean)


def _margin(outputs: Tensor) -> Tensor:
    """Return how far the largest logit is above the others; of a single one, its size."""
    if len(outputs) == 1:
        return outputs[0].abs().double()
    first, second = outputs.double().topk(2).values
    margin: Tensor = first - second
    return margin
