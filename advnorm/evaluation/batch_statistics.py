r"""Accuracy of a model whose norms take the statistics of the test batch, under attack.

The answer for an image then depends on the whole batch. So a batch is attacked as a whole
(:mod:`advnorm.attacks.whole_batch`):

- jointly: all rows are moved, to make all of them wrong;
- a share at a time: some rows are moved, to make these wrong, beside clean other rows, and
  then the next ones. What all rows have in common a norm of the batch removes, so that few
  attacked rows can be more vulnerable than a whole batch of them;
- by malicious rows, a share of each batch, moved to make the benign rows wrong.

Gradients flow through the statistics. Each attack runs once with each objective; where the
median normalizes, whose gradient is that of one value, also along the gradient of the
mean's statistics. Of each batch that attack counts which leaves the fewest rows right.

A verdict depends on the batch that a sample was in: the verdicts name it.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from advnorm import norms
from advnorm.attacks.whole_batch import OBJECTIVES, AttackedBatch, whole_batch_pgd
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.conditions import Condition
from advnorm.evaluation.engine import logits_of, search_dtype
from advnorm.evaluation.stages import predict
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.progress import Progress, Quiet
from advnorm.records import Verdicts
from advnorm.threat import Threat

Statistics = Literal["running", "batch", "median"]
BatchStatistic = Literal["batch", "median"]
_ATTACKS = ("fgsm", "bim", "pgd")
_NATURAL = ("clean", "noise", "corruption")


@dataclass(frozen=True)
class BatchStatistics:
    """Whose statistics of a batch normalize, and how much of it an adversary has."""

    statistic: BatchStatistic
    batch_size: int
    malicious: float = 0.0
    """Share of the rows that an adversary moves against the others."""
    attacked: float = 1.0
    """Where none are malicious: share of the rows that are attacked at a time."""

    def __post_init__(self) -> None:
        if self.statistic not in get_args(BatchStatistic):
            raise ValueError(
                f"statistics are {', '.join(get_args(Statistics))}, not {self.statistic!r}"
            )
        if self.batch_size < 2:
            raise ValueError(
                f"batch statistics need batches of at least 2 samples, not batch_size="
                f"{self.batch_size}"
            )
        if not 0 <= self.malicious < 1:
            raise ValueError(
                f"malicious is a share of a batch, from 0 and below 1, not "
                f"{self.malicious:g}"
            )
        if not 0 < self.attacked <= 1 or (self.malicious and self.attacked < 1):
            raise ValueError(
                f"attacked is the share of a batch that is attacked at a time, above 0 and "
                f"up to 1, not {self.attacked:g}; with malicious rows leave it out"
            )
        if self.malicious and not 0 < self.malicious_rows < self.batch_size:
            raise ValueError(
                f"malicious={self.malicious:g} is {self.malicious_rows} of "
                f"{self.batch_size} rows: a batch needs a malicious and a benign row, so "
                "change the share or batch_size"
            )

    @property
    def malicious_rows(self) -> int:
        """Malicious rows of each batch."""
        return round(self.malicious * self.batch_size)

    @property
    def gradients(self) -> tuple[BatchStatistic, ...]:
        """The statistics along whose gradients attacks go."""
        return ("batch",) if self.statistic == "batch" else ("median", "batch")

    def check(self, model: nn.Module, count: int) -> None:
        """Refuse a model without batch norms, and samples that leave a batch unfilled."""
        if not norms.batch_norms(model):
            raise ValueError(
                f"statistics={self.statistic}, but the model has no batch norm: leave "
                "statistics at running (other packages' norms: norms.convert(model, "
                "'batch') first)"
            )
        spare = count % self.batch_size
        if spare:
            size = next(
                n for n in range(min(self.batch_size, count), 0, -1) if not count % n
            )
            other = f"batch_size={size}" if size > 1 else "another batch_size"
            fewer = f", or {count - spare} samples" if count > spare else ""
            raise ValueError(
                f"{count} samples do not fill batches of {self.batch_size}: the last has "
                f"{spare}, and with statistics of the batch its answers would be those of "
                f"another model; use {other}{fewer}"
            )

    def condition(self, condition: Condition) -> Condition:
        """Return a condition under these statistics, named by them; some are refused."""
        names = [name.entry.name for name in condition.attacks]
        joint = condition.kind == "attack" and names[0] in _ATTACKS
        targeted = any(name.target != "none" for name in condition.attacks)
        if condition.kind not in _NATURAL and (not joint or targeted):
            raise ValueError(
                f"{condition.name} attacks or certifies each image by itself, but with "
                f"statistics={self.statistic} the answer for an image depends on its "
                "batch: name clean, noise, corruptions, fgsm, bim-STEPS or pgd-STEPS"
            )
        settings = {**condition.settings, "batch": self.batch_size}
        if self.malicious:
            settings["malicious"] = self.malicious
        if condition.attacks:
            if self.attacked < 1:
                settings["attacked"] = self.attacked
            settings["objectives"] = " ".join(OBJECTIVES)
            settings["gradients"] = " ".join(self.gradients)
        name = f"{condition.name}+{self.statistic}={self.batch_size}"
        for word in ("malicious", "attacked"):
            name += f"+{word}={settings[word]}" if word in settings else ""
        return replace(condition, name=name, settings=settings)

    def malicious_of(self, samples: Tensor, seed: int) -> Tensor:
        """Draw the malicious rows of a batch; in increasing order."""
        return _order(samples, seed)[: self.malicious_rows].sort().values

    def attacked_of(self, samples: Tensor, seed: int) -> tuple[Tensor, ...]:
        """Draw which rows of a batch are attacked together, where none is malicious."""
        if self.attacked == 1:
            return (torch.arange(len(samples), device=samples.device),)
        rows = max(1, round(self.attacked * len(samples)))
        parts = torch.split(_order(samples, seed), rows)
        return tuple(part.sort().values for part in parts)

    @contextmanager
    def scope(self, model: nn.Module, statistic: BatchStatistic) -> Iterator[None]:
        """Let the model's norms take a batch's statistics."""
        with ExitStack() as stack:
            stack.enter_context(norms.mode(model, "batch"))
            if statistic == "median":
                stack.enter_context(norms.median_statistics(model))
            yield


@dataclass
class BatchRun:
    """One condition over batches: a verdict on each sample that is not malicious."""

    model: nn.Module
    condition: Condition
    statistics: BatchStatistics
    seed: int = 0
    images: list[Tensor] = field(default_factory=list)
    """The batches as attacks left them, malicious rows included; each share of its own
    attack, where a share is attacked at a time."""

    def run(
        self, batches: Iterable[Batch], *, total: int, progress: Progress | None = None
    ) -> Verdicts:
        """Test all batches; the model is restored afterwards."""
        self.statistics.check(self.model, total)
        verdicts, progress = Verdicts(), progress or Quiet()
        with eval_mode(self.model), frozen_parameters(self.model):
            for number, batch in enumerate(batches):
                images = batch.images.to(search_dtype(self.model))
                verdicts = self._test(verdicts, batch._replace(images=images), number)
                so_far = verdicts.accuracy()
                text = f"{self.condition.key} {so_far.fraction:.1%}"
                progress.update((number + 1) * self.statistics.batch_size, total, text)
        return verdicts

    def _test(self, done: Verdicts, batch: Batch, number: int) -> Verdicts:
        """Add the verdicts on the benign rows of one batch."""
        draws = Draws.of(self.seed, batch.samples)
        change = self.condition.change.change
        images = change(batch.images, draws) if change else batch.images
        malicious = self.statistics.malicious_of(batch.samples, self.seed)
        benign = torch.ones(len(images), dtype=torch.bool, device=images.device)
        benign[malicious] = False
        before = self._predict(images, batch.labels)
        right = benign & (before == batch.labels)
        worst, seen = before.clone(), images.clone()
        for moved, tested in self._searches(batch, malicious, right):
            counted = tested.nonzero().squeeze(1)
            attacked = AttackedBatch(images, batch.labels, moved, counted)
            predictions, x = self._worst(attacked, draws)
            worst[counted], seen[moved] = predictions[counted], x[moved]
        self.images.append(seen)
        robust = right & (worst == batch.labels)
        broken = right & ~robust
        name = self.condition.attacks[0].text if self.condition.attacks else ""
        rows = benign.nonzero().squeeze(1)
        predictions = torch.where(broken, worst, before)[rows]
        members = (tuple(batch.samples[malicious].tolist()),) if len(malicious) else ()
        return done.model_copy(
            update={
                "samples": (*done.samples, *batch.samples[rows].tolist()),
                "labels": (*done.labels, *batch.labels[rows].tolist()),
                "predictions": (*done.predictions, *predictions.tolist()),
                "robust": (*done.robust, *robust[rows].tolist()),
                "by": (*done.by, *(name if b else "" for b in broken[rows].tolist())),
                "batches": (*done.batches, *[number] * len(rows)),
                "malicious": (*done.malicious, *members),
            }
        )

    def _searches(
        self, batch: Batch, malicious: Tensor, right: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rows that an attack moves, and a mask of those it wants to be wrong."""
        if not self.condition.searches or not bool(right.any()):
            return
        if len(malicious):
            yield malicious, right
            return
        for moved in self.statistics.attacked_of(batch.samples, self.seed):
            tested = torch.zeros_like(right)
            tested[moved] = right[moved]
            if bool(tested.any()):
                yield moved, tested

    def _worst(self, batch: AttackedBatch, draws: Draws) -> tuple[Tensor, Tensor]:
        """Return predictions and images of the attack that leaves the fewest rows right."""
        threat = self.condition.threat
        assert threat is not None
        labels, worst = batch.labels, (len(batch.counted) + 1, batch.labels, batch.images)
        for images in self._attacked(batch, threat, draws):
            inside = threat.contains(images[batch.moved], batch.images[batch.moved])
            rows = torch.where(
                inside.view(-1, *(1,) * (images.ndim - 1)),
                images[batch.moved],
                batch.images[batch.moved],
            )
            images = batch.with_moved(rows)
            predictions = self._predict(images, labels)
            right = int((predictions == labels)[batch.counted].sum())
            if right < worst[0]:
                worst = right, predictions, images
        return worst[1], worst[2]

    def _attacked(
        self, batch: AttackedBatch, threat: Threat, draws: Draws
    ) -> Iterator[Tensor]:
        """Yield the batch under each restart, gradient and objective."""
        (name,), settings = self.condition.attacks, self.condition.settings
        steps = max(1, name.steps)
        step_size = settings.get("step_size") or threat.eps
        attack = partial(
            whole_batch_pgd,
            logits_of(self.model),
            batch,
            threat,
            steps=steps,
            step_size=float(step_size),
            clean_start=name.clean_start if name.entry.name == "pgd" else 1.0,
        )
        for restart in range(name.restarts):
            own = draws.stream(name.random_stream, restart)
            for statistic in self.statistics.gradients:
                for objective in OBJECTIVES.values():
                    with self.statistics.scope(self.model, statistic):
                        images = attack(objective=objective, draws=own)
                    yield images

    def _predict(self, images: Tensor, labels: Tensor) -> Tensor:
        with self.statistics.scope(self.model, self.statistics.statistic):
            return predict(logits_of(self.model), images, labels)


def batch_statistics(
    statistics: Statistics, batch_size: int, malicious: float, attacked: float
) -> BatchStatistics:
    """Return the statistics of a batch; settings that need them are refused without."""
    if statistics == "running":
        raise ValueError(
            f"malicious={malicious:g} and attacked={attacked:g} are about the rows of a "
            "batch, and with running statistics no row changes the answer for another: set "
            "statistics to batch or median"
        )
    return BatchStatistics(statistics, batch_size, malicious, attacked)


def _order(samples: Tensor, seed: int) -> Tensor:
    """Return the rows of a batch in an order that seed and samples decide."""
    draws = Draws.of(seed, samples).stream("malicious")
    return draws.uniform(dtype=torch.float64).argsort()
