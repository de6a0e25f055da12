"""Where a number of a row is on record: in a result, an answer, an epoch or a transfer.

Each kind is a small value with a method that reads it. An accuracy is read in percent,
together with the number of its samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Literal, NamedTuple

from advnorm.papers.images import image_verdicts
from advnorm.records import (
    Accuracy,
    Diagnosis,
    ImageVerdicts,
    Run,
    ThreatRecord,
    result_key,
)

_ACCURACIES = {
    "attacked_loss": ("clean accuracy", "attacked accuracy"),
    "top_k": ("clean", "noise", "attacked"),
    "tuned_norms": ("clean, before", "clean, tuned", "attacked, before", "attacked, tuned"),
}
"""By question: which of its numbers are accuracies in percent, of its ``n`` samples."""


class Number(NamedTuple):
    """A number of a run."""

    value: float
    n: int | None = None
    """Of an accuracy, which is in percent: its samples."""
    images: ImageVerdicts | None = None
    """Of an accuracy under one condition: which images stayed right."""


class Measurements(NamedTuple):
    """All that was measured of a job's run."""

    run: Run
    answers: Mapping[str, Diagnosis]
    """By question; what the recipe monitors has answers such as
    ``wasserstein_over_training``."""
    transfers: Mapping[str, Accuracy]
    """Accuracies of other runs on this run's adversarial examples, by target."""


class NumberSource(ABC):
    """Where a number is."""

    @abstractmethod
    def read(self, measured: Measurements) -> Number:
        """Return the number, or say which one is missing."""


@dataclass(frozen=True)
class ResultNumber(NumberSource):
    """The accuracy under a condition of an evaluation.

    >>> ResultNumber("fgsm", eps=0.1).key
    'fgsm_linf_0.1'
    """

    condition: str
    eps: float | None = None
    """The radius; ``None`` for a condition without an adversary."""
    norm: str = "linf"
    """The norm of the ball; of perturbed statistics, the part that is perturbed."""
    branch: str | None = None
    """Of a mixture norm."""
    data: str | None = None
    """Another data set than the run's own."""
    steps: int | None = None
    """Of a curve, such as ``pgd-10..200``: the accuracy after this number of steps."""

    @property
    def key(self) -> str:
        """The name of the result's file."""
        threat = None if self.eps is None else ThreatRecord(norm=self.norm, eps=self.eps)
        return result_key(self.condition, threat, self.branch, self.data)

    def read(self, measured: Measurements) -> Number:
        """Return the accuracy."""
        result = measured.run.result(self.key)
        if result is None:
            keys = ", ".join(other.key for other in measured.run.results())
            raise ValueError(
                f"{measured.run.path} has no result {self.key!r}; there are: {keys}"
            )
        accuracy = result.accuracy if self.steps is None else result.curve[self.steps]
        verdicts = measured.run.verdicts(self.key)
        images = image_verdicts(verdicts, result, self.steps)
        return _percent(accuracy)._replace(images=images)


CLEAN = ResultNumber("clean")
"""The accuracy on clean test images."""


@dataclass(frozen=True)
class AnswerNumber(NumberSource):
    """A number of a question's answer."""

    question: str
    name: str

    def read(self, measured: Measurements) -> Number:
        """Return the number; with its samples where it is an accuracy."""
        answer = measured.answers[self.question]
        if self.name not in answer.numbers:
            names = ", ".join(answer.numbers)
            raise ValueError(
                f"{self.question} has no number {self.name!r}; there are: {names}"
            )
        count = answer.settings.get("n")
        accuracy = self.name in _ACCURACIES.get(self.question, ())
        n = count if accuracy and isinstance(count, int) else None
        return Number(answer.numbers[self.name], n)


@dataclass(frozen=True)
class EpochNumber(NumberSource):
    """A field of the last epoch of training."""

    field: Literal["loss", "train", "validation_clean", "validation_robust"]

    def read(self, measured: Measurements) -> Number:
        """Return the field; an accuracy in percent."""
        epochs = measured.run.epochs()
        if not epochs:
            raise ValueError(
                f"{measured.run.path} has lost metrics.jsonl: remove the whole folder"
            )
        value = getattr(epochs[-1], self.field)
        return _percent(value) if isinstance(value, Accuracy) else Number(float(value))


@dataclass(frozen=True)
class TrainingMinutes(NumberSource):
    """The time of all epochs of a run, in minutes, on the machine that trained it."""

    def read(self, measured: Measurements) -> Number:
        """Return the minutes."""
        epochs = measured.run.epochs()
        if not epochs:
            raise ValueError(
                f"{measured.run.path} has lost metrics.jsonl: remove the whole folder"
            )
        return Number(sum(epoch.seconds for epoch in epochs) / 60)


@dataclass(frozen=True)
class TransferNumber(NumberSource):
    """The accuracy of another run on this run's adversarial examples."""

    target: str

    def read(self, measured: Measurements) -> Number:
        """Return the accuracy."""
        return _percent(measured.transfers[self.target])


@dataclass(frozen=True)
class MeanNumber(NumberSource):
    """The mean of several numbers."""

    numbers: tuple[NumberSource, ...]

    def read(self, measured: Measurements) -> Number:
        """Return the mean, with the samples of each number if they are the same."""
        numbers = [source.read(measured) for source in self.numbers]
        return Number(mean(number.value for number in numbers), sample_count(numbers))


@dataclass(frozen=True)
class DifferenceNumber(NumberSource):
    """One number less another."""

    minuend: NumberSource
    subtrahend: NumberSource

    def read(self, measured: Measurements) -> Number:
        """Return the difference, which is no accuracy."""
        minuend, subtrahend = self.minuend.read(measured), self.subtrahend.read(measured)
        return Number(minuend.value - subtrahend.value)


def sample_count(numbers: Collection[Number]) -> int | None:
    """Return the number of samples of each number, if it is the same for all.

    >>> sample_count([Number(50.0, 10), Number(60.0, 10)])
    10
    >>> sample_count([Number(50.0, 10), Number(1.5)])
    """
    counts = {number.n for number in numbers}
    return counts.pop() if len(counts) == 1 else None


def _percent(accuracy: Accuracy) -> Number:
    return Number(100 * accuracy.fraction, accuracy.n)
