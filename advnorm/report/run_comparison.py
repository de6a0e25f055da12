"""Pairs of runs: which samples changed sides, and how likely that is by chance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from advnorm.records import Accuracy, Result
from advnorm.report.completion_marks import unfinished_runs, unfinished_text
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.rows import columns, condition_label
from advnorm.report.verdict_arrays import LoadedVerdicts
from advnorm.significance import holm, mcnemar, paired_interval

MOST_RUNS = 8
"""The most runs that are compared in pairs."""
MOST_PAIRS = 200
"""The most comparisons of a page."""
LEVEL = 0.05
"""The error rate of all comparisons of a table together."""
METHOD = (
    "Each comparison is of two trained models on the same test samples; it says nothing "
    "about other seeds. p is that of McNemar's test in its exact binomial form, two-sided, "
    "on the samples that exactly one of the two gets right, corrected for all of these "
    "comparisons (Holm): the chance of any false difference is at most 5%. The interval of "
    "the difference is Tango's 95% score interval for paired proportions, of one "
    "difference alone; it may leave out 0 where the exact, corrected test decides nothing."
)


@dataclass(frozen=True)
class PairedComparison:
    """Two runs under one condition."""

    first: str
    second: str
    key: str
    condition: str
    n: int
    both: int
    """Samples that both get right."""
    first_only: tuple[int, ...]
    """The samples that only the first gets right."""
    second_only: tuple[int, ...]
    raw_p: float
    p: float
    """Corrected for all comparisons beside it."""
    flags: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Those of the first and of the second run's result."""
    remarks: tuple[str, ...] = ()
    """Different settings, and unfinished training."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Remarks, and the flags of either result, each with its run."""
        runs = zip((self.first, self.second), self.flags, strict=True)
        flags = [f"{name}: {flag}" for name, own in runs for flag in own]
        return (*self.remarks, *flags)

    @property
    def first_accuracy(self) -> Accuracy:
        """That of the first run on the samples of both."""
        return Accuracy(correct=self.both + len(self.first_only), n=self.n)

    @property
    def second_accuracy(self) -> Accuracy:
        """That of the second run on the samples of both."""
        return Accuracy(correct=self.both + len(self.second_only), n=self.n)

    @property
    def difference(self) -> float:
        """First minus second."""
        return (len(self.first_only) - len(self.second_only)) / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the difference."""
        return paired_interval(len(self.first_only), len(self.second_only), self.n)

    @property
    def decided(self) -> bool:
        """Whether the two differ at 5%, all comparisons together."""
        return self.p <= LEVEL

    @property
    def difference_text(self) -> str:
        """The difference in points, with its interval."""
        low, high = self.interval
        return f"{100 * self.difference:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def paired_comparisons(
    groups: Sequence[RunGroup], verdicts: LoadedVerdicts, headline: str | None
) -> list[PairedComparison]:
    """Compare the first runs in pairs under every condition that both have.

    The headline's condition comes first. Samples of different data, or with other labels,
    are not compared.
    """
    runs = [run for group in groups for run in group.members][:MOST_RUNS]
    keys = columns(runs)
    rank = {key: place for place, key in enumerate(keys)}
    raw = [
        comparison
        for first, second in combinations(runs, 2)
        for comparison in _pair(first, second, keys, verdicts)
    ]
    known = {r.key: r.key_without_branch for run in runs for r in run.results.values()}
    raw.sort(key=lambda pair: (known[pair.key] != headline, rank[pair.key]))
    shown = raw[:MOST_PAIRS]
    adjusted = holm([pair.raw_p for pair in shown])
    return [
        PairedComparison(**{**vars(pair), "p": p})
        for pair, p in zip(shown, adjusted, strict=True)
    ]


def _pair(
    first: ReportRun, second: ReportRun, keys: Sequence[str], verdicts: LoadedVerdicts
) -> Iterator[PairedComparison]:
    for key in keys:
        one, other = verdicts.get((first.name, key)), verdicts.get((second.name, key))
        if one is None or other is None:
            continue
        results = (first.results[key], second.results[key])
        samples, rows, others = np.intersect1d(
            one.samples, other.samples, return_indices=True
        )
        same = _alike(*results) and (one.labels[rows] == other.labels[others]).all()
        if not len(samples) or not same:
            continue
        right, also = one.correct[rows], other.correct[others]
        first_only = samples[right & ~also].tolist()
        second_only = samples[also & ~right].tolist()
        p = mcnemar(len(first_only), len(second_only))
        yield PairedComparison(
            first=first.name,
            second=second.name,
            key=key,
            condition=condition_label(results[0]),
            n=len(samples),
            both=int((right & also).sum()),
            first_only=tuple(first_only),
            second_only=tuple(second_only),
            raw_p=p,
            p=p,
            flags=(results[0].flags, results[1].flags),
            remarks=tuple(_remarks(first.name, second.name, *results)),
        )


def _alike(first: Result, second: Result) -> bool:
    return (first.data, first.split) == (second.data, second.split)


def _remarks(first: str, second: str, one: Result, other: Result) -> Iterator[str]:
    if one.settings != other.settings:
        yield "the two were measured with different settings"
    for name, result in ((first, one), (second, other)):
        if text := unfinished_text(unfinished_runs([result])):
            yield f"{name}: {text}"
