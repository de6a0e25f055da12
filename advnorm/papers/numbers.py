"""The numbers of a run by their names, and the number of samples of an accuracy."""

from collections.abc import Collection, Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from advnorm.records import Accuracy, Diagnosis, Run

_ACCURACIES = {
    "attacked_loss": ("clean accuracy", "attacked accuracy"),
    "top_k": ("clean", "noise", "attacked"),
}
"""By question: which of its numbers are accuracies in percent, of its ``n`` samples."""


class Number(NamedTuple):
    """A number of a run."""

    value: float
    n: int | None = None
    """Of an accuracy, which is in percent: its samples."""


def read_numbers(
    wanted: Mapping[str, str],
    run: Run,
    answers: Mapping[str, Diagnosis],
    accuracies: Mapping[str, Accuracy],
) -> dict[str, Number]:
    """Return a row's numbers by column: see :class:`~advnorm.papers.artefact.Job`.

    ``accuracies`` are further ones by name, beside what the run has on record.
    """
    return {
        column: _mean(
            [
                _percent(accuracies[name])
                if name in accuracies
                else _number(name, run, answers)
                for name in names.split(" & ")
            ]
        )
        for column, names in wanted.items()
    }


def sample_count(numbers: Collection[Number]) -> int | None:
    """Return the number of samples of each number, if it is the same for all.

    >>> sample_count([Number(50.0, 10), Number(60.0, 10)])
    10
    >>> sample_count([Number(50.0, 10), Number(1.5)])
    """
    counts = {number.n for number in numbers}
    return counts.pop() if len(counts) == 1 else None


def _mean(numbers: Sequence[Number]) -> Number:
    return Number(mean(number.value for number in numbers), sample_count(numbers))


def _percent(accuracy: Accuracy) -> Number:
    return Number(100 * accuracy.fraction, accuracy.n)


def _number(name: str, run: Run, answers: Mapping[str, Diagnosis]) -> Number:
    minuend, minus, subtrahend = name.partition(" - ")
    if minus:
        total = _number(minuend, run, answers)
        return Number(total.value - _number(subtrahend, run, answers).value)
    kind, slash, field = name.partition("/")
    if slash and kind == "epoch":
        epochs = run.epochs()
        if not epochs:
            raise ValueError(f"{run.path} has lost metrics.jsonl: remove the whole folder")
        value = getattr(epochs[-1], field)
        return _percent(value) if isinstance(value, Accuracy) else Number(float(value))
    if slash and kind in answers:
        return _answered(answers[kind], field)
    key, at, step = name.partition("#")
    result = run.result(key)
    if result is None:
        there = ", ".join(each.key for each in run.results())
        raise ValueError(f"{run.path} has no result {key!r}; there are: {there}")
    return _percent(result.curve[int(step)] if at else result.accuracy)


def _answered(answer: Diagnosis, name: str) -> Number:
    """Return a number of an answer."""
    if name not in answer.numbers:
        there = ", ".join(answer.numbers)
        raise ValueError(f"{answer.question} has no number {name!r}; there are: {there}")
    accuracy, count = name in _ACCURACIES.get(answer.question, ()), answer.settings.get("n")
    n = count if accuracy and isinstance(count, int) else None
    return Number(answer.numbers[name], n)
