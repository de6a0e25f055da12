"""The verdicts of a run under one condition, as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advnorm.records import Result, Run, Verdicts
from advnorm.report.groups import RunGroup

OUTCOMES = (
    "not tested",
    "misclassified",
    "broken",
    "robust",
    "certified",
    "not certified",
)
"""What becomes of a sample; its number is its code.

``misclassified``: on the image of the condition, before any attack. ``broken``: by an
attack. ``robust``: classified correctly to the end. ``certified``: no image of the threat
is misclassified. ``not certified``: classified correctly, neither certified nor attacked.
"""
NOT_TESTED, MISCLASSIFIED, BROKEN, ROBUST, CERTIFIED, NOT_CERTIFIED = range(6)
_LARGEST = 1 << 24
_MOST_CLASSES = 1 << 20
_NO_ATTACK = -1

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class VerdictArrays:
    """One entry a sample, in the order of the record."""

    samples: IntArray
    labels: IntArray
    predictions: IntArray
    outcomes: IntArray
    """Codes of :data:`OUTCOMES`."""
    broken_by: IntArray
    """Of a broken sample: a number of ``attacks``; else -1."""
    attacks: tuple[str, ...]

    @property
    def correct(self) -> BoolArray:
        """Whether each sample counts as correct in the accuracy of its condition."""
        correct: BoolArray = (self.outcomes == ROBUST) | (self.outcomes == CERTIFIED)
        return correct

    @property
    def correct_at_start(self) -> BoolArray:
        """Whether each sample is classified correctly before any attack."""
        correct: BoolArray = self.outcomes != MISCLASSIFIED
        return correct


LoadedVerdicts = Mapping[tuple[str, str], VerdictArrays]
"""By run name and result key."""


def all_verdicts(groups: Sequence[RunGroup]) -> LoadedVerdicts:
    """Read the verdicts of all runs that belong to their results."""
    return {
        (run.name, result.key): arrays
        for group in groups
        for run in group.members
        for result in run.results.values()
        if (arrays := load_verdicts(run.run, result)) is not None
    }


def load_verdicts(run: Run, result: Result) -> VerdictArrays | None:
    """Return the verdicts behind a result; ``None`` if there are none that belong to it."""
    path = run.path / "verdicts" / f"{result.key}.json"
    record = run.verdicts(result.key).first(result.accuracy.n)
    if len(record.samples) < result.accuracy.n or not record.samples:
        return None
    if record.fingerprint != result.fingerprint or record.accuracy() != result.accuracy:
        return None
    return verdict_arrays(record, result, path)


def verdict_arrays(record: Verdicts, result: Result, path: Path) -> VerdictArrays:
    """Return a record as arrays; ``path`` names it where it is damaged."""
    try:
        samples = _whole_numbers(record.samples, _LARGEST)
        labels = _whole_numbers(record.labels, _MOST_CLASSES)
        predictions = _whole_numbers(record.predictions, _MOST_CLASSES)
        robust = np.array(record.robust, dtype=bool)
        by, count = np.array(record.by, dtype=object), len(samples)
        certified = np.array(record.certified or [False] * count, dtype=bool)
        columns = (labels, predictions, robust, by, certified)
        if any(len(column) != count for column in columns):
            raise ValueError("its columns differ in length")
        if len(np.unique(samples)) != count:
            raise ValueError("a sample is named twice")
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): remove it and evaluate again"
        ) from error
    attacks = tuple(dict.fromkeys(name for name in record.by if name))
    numbers = {name: number for number, name in enumerate(attacks)}
    broken_by = np.array([numbers.get(name, _NO_ATTACK) for name in by], dtype=np.int64)
    outcomes = np.full(count, MISCLASSIFIED, dtype=np.int64)
    outcomes[broken_by != _NO_ATTACK] = BROKEN
    if result.kind == "certificate":
        outcomes[predictions == labels] = NOT_CERTIFIED
    outcomes[robust] = ROBUST
    outcomes[certified & robust] = CERTIFIED
    return VerdictArrays(samples, labels, predictions, outcomes, broken_by, attacks)


def _whole_numbers(values: Sequence[int], limit: int) -> IntArray:
    array: NDArray[Any] = np.array(values, dtype=np.int64)
    if array.size and (array.min() < 0 or array.max() >= limit):
        raise ValueError(f"a number is not between 0 and {limit}")
    return array
