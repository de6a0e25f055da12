"""The numbers of a run by their names, and how many samples are behind an accuracy."""

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


def read(
    wanted: Mapping[str, str],
    run: Run,
    answers: Mapping[str, Diagnosis],
    known: Mapping[str, Accuracy],
) -> dict[str, Number]:
    """Return a row's numbers by column: see :class:`~advnorm.papers.artefact.Job`."""
    return {
        column: _mean(
            [
                _percent(known[name]) if name in known else _number(name, run, answers)
                for name in names.split(" & ")
            ]
        )
        for column, names in wanted.items()
    }


def behind(numbers: Collection[Number]) -> int | None:
    """Return how many samples are behind each number, if it is known and one for all.

    >>> behind([Number(50.0, 10), Number(60.0, 10)])
    10
    >>> behind([Number(50.0, 10), Number(1.5)])
    """
    counts = {number.n for number in numbers}
    return counts.pop() if len(counts) == 1 else None


def _mean(numbers: Sequence[Number]) -> Number:
    return Number(mean(number.value for number in numbers), behind(numbers))


def _percent(accuracy: Accuracy) -> Number:
    return Number(100 * accuracy.fraction, accuracy.n)


def _number(name: str, run: Run, answers: Mapping[str, Diagnosis]) -> Number:
    first, minus, second = name.partition(" - ")
    if minus:
        one, other = (_number(part, run, answers) for part in (first, second))
        return Number(one.value - other.value)
    kind, slash, rest = name.partition("/")
    if slash and kind == "epoch":
        epochs = run.epochs()
        if not epochs:
            raise ValueError(f"{run.path} has lost metrics.jsonl: remove the whole folder")
        value = getattr(epochs[-1], rest)
        return _percent(value) if isinstance(value, Accuracy) else Number(float(value))
    if slash and kind in answers:
        return _answered(answers[kind], rest)
    key, at, step = name.partition("#")
    result = run.result(key)
    if result is None:
        there = ", ".join(one.key for one in run.results())
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
