"""The stages of a condition: a natural change, a certificate, attacks, a curve of steps.

A condition shows the model its images (:class:`NaturalChange`), and then runs a short list
of stages. Each sees what those before it left: samples that are robust and not certified.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from advnorm.attacks import GOALS, AttackGoal, AttackName, LogitsFn, classify
from advnorm.attacks.pgd import ascend, starting_point
from advnorm.bounds import is_certified
from advnorm.draws import Draws
from advnorm.evaluation.inputs import check_finite
from advnorm.records import Setting
from advnorm.threat import Threat

NOT_BROKEN = -1


class StageInput(NamedTuple):
    """The model and the batch that stages work on."""

    model: nn.Module
    logits_fn: LogitsFn
    clean: Tensor
    labels: Tensor
    draws: Draws
    samples: Tensor | None = None
    """Their numbers in the data."""
    fast_fn: LogitsFn | None = None
    """What searches call, where it has the model's logits by faster passes."""
    half_fn: LogitsFn | None = None
    """The same in half precision: what searches call first, where there is one."""
    adapted_fn: LogitsFn | None = None
    """What an adaptive search calls, and nothing else."""

    @property
    def search_fn(self) -> LogitsFn:
        """What a search calls; only :attr:`logits_fn` confirms what it returns."""
        return self.adapted_fn or self.half_fn or self.exact_fn

    @property
    def exact_fn(self) -> LogitsFn:
        """What a search calls in the model's own precision."""
        return self.adapted_fn or self.fast_fn or self.logits_fn

    def retries(self) -> list[tuple[LogitsFn, LogitsFn]]:
        """Return what a search called, and what to call where that alone was fooled."""
        if self.adapted_fn is not None:
            return []
        pairs = [(self.half_fn, self.exact_fn), (self.fast_fn, self.logits_fn)]
        return [(searched, retry) for searched, retry in pairs if searched is not None]


class BatchVerdicts(NamedTuple):
    """The verdicts on a batch, one row per sample; stages write into it."""

    images: Tensor
    """The images as the model saw them last."""
    predictions: Tensor
    robust: Tensor
    broken_by: Tensor
    """The number of the attack that broke a sample, else :data:`NOT_BROKEN`.

    It is also :data:`NOT_BROKEN` for a sample that was misclassified from the start.
    """
    certified: Tensor
    curve: Tensor | None = None
    """Of a curve: whether a sample is robust at each step count, ``(batch, counts)``."""
    radii: Tensor | None = None
    """Of radii: the largest certified and the smallest broken one, ``(batch, 2)``."""
    draws: Tensor | None = None
    """Of a randomized model: which draws are right, ``(batch, draws)``."""

    def to_attack(self) -> Tensor:
        """Return the rows that are robust so far, and that no certificate covers."""
        return (self.robust & ~self.certified).nonzero().squeeze(1)


class Stage(Protocol):
    """A step of a condition."""

    def run(self, batch: StageInput, verdicts: BatchVerdicts) -> BatchVerdicts:
        """Return the verdicts after this stage."""
        ...


class BoundAttack(NamedTuple):
    """An attack with its threat and settings, ready to run."""

    name: str
    attack: Callable[..., Tensor]
    """``attack(logits_fn, clean, labels, draws=draws)``."""
    restarts: int
    settings: dict[str, Setting]
    random_stream: str
    """The name of its random numbers."""

    def with_goal(self, goal: AttackGoal) -> "BoundAttack":
        """Return the attack with another goal, which its function must take."""
        return self._replace(attack=partial(self.attack, goal=goal))


def predict(logits_fn: LogitsFn, images: Tensor, labels: Tensor) -> Tensor:
    """Return the class of each image in a fresh pass; a tie is broken against the label.

    Logits that are not finite are refused: NaN is no prediction.
    """
    with torch.no_grad():
        logits = logits_fn(images)
    check_finite(logits)
    return classify(logits, labels)


@dataclass(frozen=True)
class NaturalChange:
    """Change images without an adversary; the prediction on the changed image counts."""

    change: Callable[[Tensor, Draws], Tensor] | None = None
    """``None`` leaves the clean images as they are."""

    def run(self, batch: StageInput) -> BatchVerdicts:
        """Predict the changed images."""
        images = self.change(batch.clean, batch.draws) if self.change else batch.clean
        predictions = predict(batch.logits_fn, images, batch.labels)
        robust = predictions == batch.labels
        return BatchVerdicts(
            images=images,
            predictions=predictions,
            robust=robust,
            broken_by=torch.full_like(predictions, NOT_BROKEN),
            certified=torch.zeros_like(robust),
        )


CLEAN = NaturalChange()


@dataclass(frozen=True)
class Certificate:
    """Prove by ``method`` that no image of the threat is misclassified."""

    method: str
    threat: Threat
    decides: bool = False
    """Whether it alone decides: a sample is robust only if it is certified."""

    def run(self, batch: StageInput, verdicts: BatchVerdicts) -> BatchVerdicts:
        """Certify the samples that are classified correctly."""
        rows = verdicts.to_attack()
        dtype = next((p.dtype for p in batch.model.parameters()), batch.clean.dtype)
        clean, labels = batch.clean[rows].to(dtype), batch.labels[rows]
        sure = torch.zeros_like(verdicts.certified)
        sure[rows] = is_certified(
            batch.model, clean, labels, self.threat, method=self.method
        )
        robust = sure.clone() if self.decides else verdicts.robust
        return verdicts._replace(certified=sure, robust=robust)


@dataclass(frozen=True)
class AttackSearch:
    """Run attacks in turn: one confirmed success of any of them breaks a sample.

    A misclassified or certified sample is not attacked; a broken one is dropped at once. A
    success counts only if a fresh forward pass confirms it, inside the ball and the bounds.
    A ball of radius 0 holds the clean image alone: nothing is searched. Where a search
    ends at an image that fools only the passes that it made, folded or in half precision,
    it is run again in more exact ones, at last in the model's own.
    """

    attacks: Sequence[BoundAttack]
    threat: Threat

    def run(self, batch: StageInput, verdicts: BatchVerdicts) -> BatchVerdicts:
        """Attack what is robust so far."""
        logits_fn, threat = batch.logits_fn, self.threat
        verdicts = verdicts._replace(images=batch.clean.clone())
        for number, attack, stream in self.restarts():
            rows = verdicts.to_attack()
            if not len(rows):
                break
            clean, labels = batch.clean[rows], batch.labels[rows]
            draws = batch.draws[rows].stream(*stream)
            x = attack(batch.search_fn, clean, labels, draws=draws)
            predictions = predict(logits_fn, x, labels)
            for searched, retry in batch.retries():
                again = _only_rounded(searched, x, labels, predictions)
                if len(again):
                    x[again] = attack(
                        retry, clean[again], labels[again], draws=draws[again]
                    )
                    predictions[again] = predict(logits_fn, x[again], labels[again])
            broken = (predictions != labels) & threat.contains(x, clean)
            verdicts.images[rows] = x
            verdicts.predictions[rows[broken]] = predictions[broken]
            verdicts.broken_by[rows[broken]] = number
            verdicts.robust[rows[broken]] = False
        return verdicts

    def restarts(self) -> Iterator[tuple[int, Callable[..., Tensor], tuple[str, int]]]:
        """Yield the number of each attack, the attack, and the stream of a restart."""
        for number, bound in enumerate(self.attacks):
            for restart in range(bound.restarts if self.threat.eps else 0):
                yield number, bound.attack, (bound.random_stream, restart)


def _only_rounded(
    searched: LogitsFn, x: Tensor, labels: Tensor, predictions: Tensor
) -> Tensor:
    """Return the rows that fool what was searched, and not the model itself."""
    robust = (predictions == labels).nonzero().squeeze(1)
    if not len(robust):
        return robust
    with torch.no_grad():
        rounded = classify(searched(x[robust]), labels[robust])
    return robust[rounded != labels[robust]]


@dataclass(frozen=True)
class KeepAdversarial:
    """Keep the images that broke samples, with the clean ones of all others.

    It comes last, and changes no verdict.
    """

    parts: list[Tensor] = field(default_factory=list)
    """A batch each, in their order."""

    def run(self, batch: StageInput, verdicts: BatchVerdicts) -> BatchVerdicts:
        """Add the images of a batch."""
        broken = verdicts.broken_by != NOT_BROKEN
        column = broken.view(-1, *(1,) * (batch.clean.ndim - 1))
        self.parts.append(torch.where(column, verdicts.images, batch.clean))
        return verdicts


@dataclass(frozen=True)
class StepCurve:
    """The accuracy after 10 to 2000 steps of PGD, all from one run (xie2020, Figure 2).

    Projected gradient ascent has no memory: N steps are the first N of any longer run with
    the same step size. So one run is tested at each step count. Two meanings of "accuracy
    under N steps" are offered, because the loss may fall again along the path:

    ``worst``: a sample is robust if it was classified correctly at every listed count up
    to N. It is dropped once it is broken, and the curve can only fall. This is the stronger
    adversary, and the default.

    ``last``: a sample is robust if it is classified correctly at the N-th iterate alone,
    which is what a separate run of N steps says, and what the paper reports. Nothing is
    dropped.
    """

    name: AttackName
    threat: Threat
    step_size: float

    def run(self, batch: StageInput, verdicts: BatchVerdicts) -> BatchVerdicts:
        """Run PGD from count to count; restarts count as in any other attack."""
        right, counts = verdicts.robust, self.name.counts
        curve = right[:, None].repeat(1, len(counts))
        verdicts = verdicts._replace(images=batch.clean.clone(), curve=curve)
        for restart in range(self.name.restarts if self.threat.eps else 0):
            self._restart(batch, verdicts, restart)
        robust = curve[:, -1]
        verdicts.broken_by[right & ~robust] = 0
        return verdicts._replace(robust=robust)

    def _restart(self, batch: StageInput, verdicts: BatchVerdicts, restart: int) -> None:
        """Run PGD once through all counts, and mark in place what is broken at each."""
        name, threat, curve = self.name, self.threat, verdicts.curve
        assert curve is not None
        draws = batch.draws.stream(name.random_stream, restart)
        x = starting_point(batch.clean, threat, clean_start=name.clean_start, draws=draws)
        steps_done = 0
        for number, count in enumerate(name.counts):
            right = curve[:, number:].any(1) & ~verdicts.certified
            rows, unbroken = right.nonzero().squeeze(1), curve[:, -1].clone()
            if not len(rows):
                return
            clean, labels = batch.clean[rows], batch.labels[rows]
            x[rows] = ascend(
                batch.search_fn,
                x[rows],
                clean,
                threat,
                GOALS[name.target](batch.search_fn, clean, labels, draws[rows]),
                steps=count - steps_done,
                step_size=self.step_size,
            )
            steps_done = count
            predictions = predict(batch.logits_fn, x[rows], labels)
            success = (predictions != labels) & threat.contains(x[rows], clean)
            broken, end = rows[success], number + 1 if name.last else None
            curve[broken, number:end] = False
            counts = not name.last or count == name.counts[-1]
            seen = unbroken[rows] | (success & counts)
            verdicts.images[rows[seen]] = x[rows[seen]]
            if counts:
                verdicts.predictions[broken] = predictions[success]
