"""What each attack of a suite took, in the order in which they ran."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from advnorm.records import Accuracy, Result
from advnorm.report.groups import RunGroup
from advnorm.report.rows import condition_label
from advnorm.report.verdict_arrays import (
    BROKEN,
    CERTIFIED,
    MISCLASSIFIED,
    LoadedVerdicts,
    VerdictArrays,
)

MOST_WATERFALLS = 24
"""The most suites that are shown."""


class WaterfallStep(NamedTuple):
    """One attack: how many samples it broke, and what remained."""

    name: str
    taken: int
    remaining: Accuracy


class Waterfall(NamedTuple):
    """One suite on one run."""

    run: str
    group: str
    condition: str
    steps: tuple[WaterfallStep, ...]
    certified: int
    """Samples that a certificate covers, which were not attacked."""


def waterfalls(
    groups: Sequence[RunGroup], verdicts: LoadedVerdicts, headline: str | None
) -> list[Waterfall]:
    """Return the waterfall of every suite of every run; the headline's come first."""
    records = [
        (result.key_without_branch != headline, run.name, result, arrays)
        for group in groups
        for run in group.members
        for key, result in run.results.items()
        if (arrays := verdicts.get((run.name, key))) is not None
        if len(_names(result, arrays)) > 1
    ]
    labels = {run.name: group.label for group in groups for run in group.members}
    return [
        Waterfall(
            name,
            labels[name],
            condition_label(result),
            tuple(_steps(result, arrays)),
            int((arrays.outcomes == CERTIFIED).sum()),
        )
        for _, name, result, arrays in sorted(records, key=lambda each: each[0])
    ]


def _steps(result: Result, arrays: VerdictArrays) -> Iterator[WaterfallStep]:
    n = len(arrays.samples)
    wrong = int((arrays.outcomes == MISCLASSIFIED).sum())
    left = n - wrong
    yield WaterfallStep("before any attack", wrong, Accuracy(correct=left, n=n))
    broken = arrays.broken_by[arrays.outcomes == BROKEN]
    counts = np.bincount(broken, minlength=len(arrays.attacks)).tolist()
    taken = dict(zip(arrays.attacks, counts, strict=True))
    for name in _names(result, arrays):
        left -= taken.get(name, 0)
        yield WaterfallStep(name, taken.get(name, 0), Accuracy(correct=left, n=n))


def _names(result: Result, arrays: VerdictArrays) -> list[str]:
    """Return the attacks of a suite in their order; its settings are named by them."""
    suite = [key.rpartition(".")[0] for key in result.settings if result.kind == "suite"]
    return list(dict.fromkeys([*filter(None, suite), *arrays.attacks]))
