"""Which classes a model takes for which, and how often each outcome occurs."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from advnorm.report.groups import RunGroup
from advnorm.report.rows import columns, condition_label
from advnorm.report.verdict_arrays import OUTCOMES, LoadedVerdicts, VerdictArrays

MOST_CLASSES = 20
"""With more classes, the most frequent confusions are listed instead of a table."""
MOST_CONFUSIONS = 30


class Confusion(NamedTuple):
    """How often each class was answered with each: after the attack where it succeeded."""

    title: str
    classes: tuple[int, ...]
    """Empty if there are too many for a table."""
    counts: dict[tuple[int, int], int]
    """By true and predicted class."""

    @property
    def most_frequent(self) -> list[tuple[int, int, int]]:
        """The most frequent mistakes: true class, predicted class, samples."""
        wrong = [(a, b, n) for (a, b), n in sorted(self.counts.items()) if a != b]
        return sorted(wrong, key=lambda row: -row[2])[:MOST_CONFUSIONS]


class OutcomeRow(NamedTuple):
    """How often each outcome occurs, but for :data:`OUTCOMES`' first."""

    group: str
    run: str
    condition: str
    counts: tuple[int, ...]
    n: int


def first_confusion(
    groups: Sequence[RunGroup], verdicts: LoadedVerdicts, headline: str | None
) -> Confusion | None:
    """Return the confusions of the first run with verdicts, under the headline if any."""
    pairs = [
        (result.key_without_branch != headline, run.name, result)
        for group in groups
        for run in group.members
        for result in run.results.values()
        if (run.name, result.key) in verdicts
    ]
    if not pairs:
        return None
    _, name, result = min(pairs, key=lambda pair: pair[0])
    title = f"{name}, {condition_label(result)}"
    return count_confusion(title, verdicts[name, result.key])


def count_confusion(title: str, arrays: VerdictArrays) -> Confusion:
    """Count the pairs of true and predicted classes."""
    counts = Counter(zip(arrays.labels.tolist(), arrays.predictions.tolist(), strict=True))
    classes = sorted({label for pair in counts for label in pair})
    return Confusion(
        title, tuple(classes) if len(classes) <= MOST_CLASSES else (), dict(counts)
    )


def outcome_rows(groups: Sequence[RunGroup], verdicts: LoadedVerdicts) -> list[OutcomeRow]:
    """Count the outcomes of every run under every condition."""
    return [
        OutcomeRow(
            group.label,
            run.name,
            condition_label(run.results[key]),
            tuple(np.bincount(arrays.outcomes, minlength=len(OUTCOMES)).tolist()[1:]),
            len(arrays.samples),
        )
        for group in groups
        for run in group.members
        for key in columns([run])
        if (arrays := verdicts.get((run.name, key))) is not None
    ]
