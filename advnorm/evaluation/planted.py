r"""The planted test: whether the attacks of an evaluation find what is surely there.

The binarization test of Zimmermann et al. (Increasing Confidence in Adversarial Robustness
Evaluations, NeurIPS 2022, arXiv:2206.13991). Around a sample many points are drawn inside
the ball and one on its boundary, and the model's last linear layer is replaced by a readout
that separates the one from the many. The modified model has an adversarial example inside
the ball for certain. Attacks that miss it on more than 5% of the samples cannot be trusted
on the model itself. A pass proves nothing where random sampling does as well.

Ours differ from the authors' code in this: half of the inner points are on the boundary of
the inner ball, like the planted one, so that it cannot be recognized by its length alone;
the readout has a closed form; and what the model computes after its last linear layer stays
in place, with logits of the model's own size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.attacks import NonFiniteGradientError, classify
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.condition_names import RADII
from advnorm.evaluation.conditions import Condition, parse_conditions
from advnorm.evaluation.engine import logits_of, run_condition, search_dtype
from advnorm.evaluation.last_layer import (
    PassCounter,
    find_last_layer,
    passes_counted,
    recorded,
)
from advnorm.evaluation.readouts import (
    FittedReadout,
    Readouts,
    fit_readout,
    readouts_in_place,
)
from advnorm.evaluation.samples import AnyModel, as_module
from advnorm.evaluation.stages import AttackSearch, Certificate
from advnorm.model_state import eval_mode
from advnorm.records import PlantedTest
from advnorm.threat import Threat

SAMPLES = 32
"""Samples of the cheap form."""
SHARE = 0.1
"""Of the passes of an evaluation: what the cheap form may cost."""
GAP = 0.05
"""Between inner points and the boundary, in units of eps (the authors' value)."""
_GROWTHS = 12
_PROBED = 8
_TOGETHER = 2
"""Samples that go through the later attacks together, where there is a budget."""


class PointCounts(NamedTuple):
    """How many points are drawn for each sample."""

    inner: int
    random: int


CHEAP, FULL = PointCounts(128, 128), PointCounts(999, 200)
"""Of every evaluation, and of an audit: the second has the paper's numbers."""


def planted_test(  # noqa: PLR0913 (one flat call)
    model: AnyModel,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    conditions: Sequence[str | Condition],
    *,
    samples: Tensor | None = None,
    points: PointCounts = CHEAP,
    budget: int | None = None,
    batch_size: int = 250,
    seed: int = 0,
) -> PlantedTest:
    """Return how many planted adversarial examples the attacks of ``conditions`` find.

    >>> from advnorm import Linf
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> images, labels = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    >>> planted_test(model, images, labels, Linf(0.1), ["pgd-20"]).success.n
    4

    Args:
        model: Images in the threat's bounds to logits. Its last linear layer is looked for
            in a pass; where there is none the result says so.
        images: Samples to plant at, shape ``(n, ...)``; what the model predicts for them
            does not matter.
        labels: Their classes.
        threat: The ball. Every attack searches it.
        conditions: The evaluation: names, or conditions with settings of their own.
        samples: The numbers of the samples, which decide random numbers; else from 0.
        points: How many points are drawn for each sample.
        budget: Passes after which no further sample is searched. The first attack sees all
            samples, and the later ones a few of those that are left at a time, until the
            result is certain. ``None`` searches all.
        batch_size: Points that pass the model together.
        seed: Decides the points and the attacks' random numbers.
    """
    model = as_module(model)
    numbers = (
        torch.arange(len(images), device=images.device) if samples is None else samples
    )
    batch = Batch(images.detach().to(search_dtype(model)), labels.long(), numbers)
    searches = _searches(conditions, threat, images.shape[1:])
    device = next((p.device for p in model.parameters()), images.device)
    batch = Batch(*(tensor.to(device) for tensor in batch))
    with ranks.single_process(), eval_mode(model), passes_counted(model) as counter:
        test = _Test(model, batch, threat, points, seed, batch_size, counter)
        return test.run(searches, budget)


def planted_budget(condition: Condition, attacked: int, classes: int) -> int:
    """Return 10% of the passes that an evaluation spent on the samples it did not break.

    ``attacked`` counts them. They pass through all attacks, so this is the least it cost.
    """
    each = sum(name.passes_with(classes) for name in condition.attacks)
    return int(SHARE * attacked * each)


@dataclass(frozen=True)
class _Test:
    """A model and samples, with what the parts of the test share."""

    model: nn.Module
    batch: Batch
    threat: Threat
    points: PointCounts
    seed: int
    batch_size: int
    counter: PassCounter

    def run(self, searches: Sequence[Condition], budget: int | None) -> PlantedTest:
        """Plant, check, and search."""
        attacks = tuple(a.text for condition in searches for a in condition.attacks)
        reason, solved, missed, random = "", 0, 0, 0
        layer, readouts, rows = None, None, torch.zeros(0, dtype=torch.long)
        classes = self._count_classes()
        if len(self.batch.images):
            layer = find_last_layer(self.model, self._own_images[:_PROBED], classes)
        if layer is None:
            reason = "no linear layer of the model decides its predictions"
        else:
            readouts, rows, solved_at_random = self._plant(layer, classes)
            random = int(solved_at_random.sum())
        if layer is not None and readouts is not None and len(rows):
            with readouts_in_place(self.model, layer, readouts):
                solved, missed = self._search(searches, rows, budget)
        return PlantedTest(
            attacks=attacks,
            solved=solved,
            missed=missed,
            undecided=len(rows) - solved - missed,
            not_planted=0 if reason else len(self.batch.images) - len(rows),
            random=random,
            inner_points=self.points.inner,
            random_points=self.points.random,
            passes=self.counter.passes,
            reason=reason,
        )

    @property
    def _own_images(self) -> Tensor:
        """The images in the model's own precision."""
        kinds = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        return self.batch.images.to(next(kinds, torch.float32))

    def _count_classes(self) -> int:
        with torch.no_grad():
            return int(logits_of(self.model)(self.batch.images[:2]).shape[1])

    def _plant(
        self, layer: nn.Linear, classes: int
    ) -> tuple[Readouts | None, Tensor, Tensor]:
        """Return readouts, the rows that could be planted, and which are solved at random.

        A plant counts if the whole model with the readout in place predicts the label on
        the clean image, and the planted class on the planted one.
        """
        fits: list[FittedReadout] = []
        images, margins, at_random, rows = [], [], [], []
        for row in range(len(self.batch.images)):
            points = self._points(row)
            features, outputs = self._features(layer, points)
            last = 1 + self.points.inner
            fit = fit_readout(features[:last], features[last])
            if fit is None:
                continue
            reached = (features[last + 1 :].double() - fit.mean) @ fit.weight
            fits.append(fit)
            rows.append(row)
            images.append(points[last])
            at_random.append(bool((reached > fit.threshold).any()))
            margins.append(_margin(outputs[0]))
        none = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.bool)
        if not rows:
            return None, *none
        chosen = torch.tensor(rows, device=self.batch.images.device)
        readouts = self._readouts(chosen, fits, torch.stack(margins).median(), classes)
        with readouts_in_place(self.model, layer, readouts):
            valid = self._are_planted(chosen, torch.stack(images), readouts)
        kept = valid.nonzero().squeeze(1)
        solved = torch.tensor(at_random)[kept.cpu()]
        return readouts[kept], chosen[kept], solved

    def _points(self, row: int) -> Tensor:
        """Return the clean image, inner points, the planted one, and random points."""
        clean = self.batch.images[row : row + 1]
        key = int(Draws.of(self.seed, self.batch.samples[row : row + 1]).keys)

        def draw(name: str, count: int) -> tuple[Tensor, Draws]:
            numbers = torch.arange(count, device=clean.device)
            many = clean.expand(count, *clean.shape[1:])
            return many, Draws.of(key, numbers).stream("planted", name)

        inside = self.threat.scaled(1 - GAP)
        half, other = self.points.inner // 2, self.points.random // 2
        return torch.cat(
            [
                clean,
                inside.sample(*draw("inner", half)),
                on_boundary(inside, *draw("inner boundary", self.points.inner - half)),
                on_boundary(self.threat, *draw("plant", 1)),
                self.threat.sample(*draw("random", other)),
                on_boundary(
                    self.threat, *draw("random boundary", self.points.random - other)
                ),
            ]
        )

    def _features(self, layer: nn.Linear, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input and the output of a layer."""
        logits_fn, features, outputs = logits_of(self.model), [], []
        with recorded(layer) as seen, torch.no_grad():
            for part in torch.split(points, self.batch_size):
                logits_fn(part)
                features.append(seen.features)
                outputs.append(seen.outputs)
        return torch.cat(features), torch.cat(outputs)

    def _readouts(
        self,
        rows: Tensor,
        fits: Sequence[FittedReadout],
        margin: Tensor,
        classes: int,
    ) -> Readouts:
        """Put fits together, with clean margins like those of the model."""
        images, labels = self.batch.images[rows], self.batch.labels[rows]
        kind = images.dtype
        weights, means, thresholds, lowest = (
            torch.stack([getattr(fit, name) for fit in fits]).to(kind)
            for name in FittedReadout._fields
        )
        # the clean image is an inner point: d is at least the lowest there
        scales = margin.to(kind).clamp(min=torch.finfo(kind).tiny) / lowest.abs()
        return Readouts(
            anchors=images.flatten(1),
            weights=weights,
            means=means,
            thresholds=thresholds,
            labels=labels,
            targets=(labels + 1) % classes,
            scales=scales,
            floors=-scales * lowest.abs(),
        )

    def _are_planted(self, rows: Tensor, plants: Tensor, readouts: Readouts) -> Tensor:
        """Tell for which samples the model with its readout answers as it should."""
        logits_fn, clean = logits_of(self.model), self.batch.images[rows]
        answers = []
        with torch.no_grad():
            for images, wanted in ((clean, readouts.labels), (plants, readouts.targets)):
                parts = torch.split(images, self.batch_size)
                logits = torch.cat([logits_fn(part) for part in parts])
                answers.append(
                    logits.isfinite().all(1) & (classify(logits, wanted) == wanted)
                )
        return answers[0] & answers[1] & self.threat.contains(plants, clean)

    def _search(
        self, searches: Sequence[Condition], rows: Tensor, budget: int | None
    ) -> tuple[int, int]:
        """Return how many samples attacks solved, and how many all of them missed."""
        if not searches:
            return 0, 0
        if budget is None or len(searches) == 1:
            left = rows
            for search in searches:
                left = self._survivors(search, left)
            return len(rows) - len(left), len(left)
        left = self._survivors(searches[0], rows)
        solved, missed = len(rows) - len(left), 0
        allowed = (1 - PlantedTest.PASS) * len(rows)
        for group in torch.split(left, _TOGETHER):
            rest = group
            for search in searches[1:]:
                rest = self._survivors(search, rest)
            solved, missed = solved + len(group) - len(rest), missed + len(rest)
            if missed > allowed or self.counter.passes >= budget:
                break
        return solved, missed

    def _survivors(self, search: Condition, rows: Tensor) -> Tensor:
        """Return the rows that an attack does not solve."""
        if not len(rows):
            return rows
        batch = Batch(*(tensor[rows] for tensor in self.batch))
        try:
            verdicts = run_condition(
                self.model, [batch], search, total=len(rows), seed=self.seed
            )
        except NonFiniteGradientError:
            return rows
        return rows[torch.tensor(verdicts.robust, device=rows.device)]


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


def _searches(
    conditions: Sequence[str | Condition], threat: Threat, shape: Sequence[int]
) -> list[Condition]:
    """Return a condition for each attack, in order, without certificates."""
    parsed: list[Condition] = []
    for each in conditions:
        if isinstance(each, Condition):
            parsed.append(each)
        else:
            parsed += parse_conditions([each], [threat], threat.bounds, shape=shape)
    chosen = [c for c in parsed if c.searches and c.name != RADII]
    for condition in chosen:
        if condition.threat != threat:
            raise ValueError(
                f"{condition.name} searches {condition.threat}, and the planted test is in "
                f"{threat}: give conditions of one threat"
            )
    return [attack for condition in chosen for attack in _single_attacks(condition)]


def _single_attacks(condition: Condition) -> Iterator[Condition]:
    """Yield a condition for each attack, in the precision of the model."""
    condition = replace(condition, precision="float32")
    for stage in condition.stages:
        if isinstance(stage, AttackSearch):
            for name, attack in zip(condition.attacks, stage.attacks, strict=True):
                search = replace(stage, attacks=[attack])
                yield replace(condition, stages=(search,), attacks=(name,))
        elif not isinstance(stage, Certificate):
            yield replace(condition, stages=(stage,))


def _margin(outputs: Tensor) -> Tensor:
    """Return how far the largest logit is above the others; of a single one, its size."""
    if len(outputs) == 1:
        return outputs[0].abs().double()
    first, second = outputs.double().topk(2).values
    return first - second
