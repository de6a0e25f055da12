"""From certified to broken: what is known of each sample at each radius."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advnorm.records import Result
from advnorm.report.completion_marks import unfinished_runs
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.rows import TableCell, branch_label, norm_label
from advnorm.report.verdict_arrays import (
    CERTIFIED,
    NOT_CERTIFIED,
    ROBUST,
    LoadedVerdicts,
    VerdictArrays,
)

KINDS = ("attack", "suite", "curve", "certificate")
"""The kinds of conditions that say something about all images around a sample."""


class ShareKey(NamedTuple):
    """What one chart of shares is about, beside its group."""

    norm: str
    branch: str | None
    data: str
    """Empty for the runs' own data."""


class RadiusShares(NamedTuple):
    """The shares at one radius; they add up to 1."""

    eps: float
    certified: TableCell
    open: TableCell
    broken: TableCell


class SharesOfGroup(NamedTuple):
    """The shares of one group at all of its radii."""

    group: str
    key: ShareKey
    shares: tuple[RadiusShares, ...]
    certificates: bool
    """Whether any certificate was computed."""
    contradictions: int
    """Samples that are certified at a radius at which an attack broke them."""

    @property
    def title(self) -> str:
        """Its group, norm, branch and data."""
        branch = branch_label(self.key.branch)
        data = f"on {self.key.data}" if self.key.data else ""
        parts = (self.group, branch, norm_label(self.key.norm), data)
        return ", ".join(filter(None, parts))


class _RunShares(NamedTuple):
    certified: NDArray[np.bool_]
    """Radii by samples."""
    broken: NDArray[np.bool_]
    contradictions: int


def shares_of_groups(
    groups: Sequence[RunGroup], verdicts: LoadedVerdicts
) -> list[SharesOfGroup]:
    """Return the shares of every group, for each norm, branch and data set.

    A sample is broken if it is misclassified or any attack at that radius or a smaller one
    broke it; certified if any certificate covers it at that radius or a larger one; open
    else. Balls are nested, so that both conclusions are sound.
    """
    keys = dict.fromkeys(
        key
        for group in groups
        for run in group.one_per_seed
        for result in run.results.values()
        if (key := _key(result)) and (run.name, result.key) in verdicts
    )
    shares = [_of_group(group, key, verdicts) for key in keys for group in groups]
    return [each for each in shares if each is not None]


def _key(result: Result) -> ShareKey | None:
    if result.threat is None or result.kind not in KINDS:
        return None
    data = result.data if result.other else ""
    return ShareKey(result.threat.norm, result.branch, data)


def _of_group(
    group: RunGroup, key: ShareKey, verdicts: LoadedVerdicts
) -> SharesOfGroup | None:
    tested = [
        (run, results)
        for run in group.one_per_seed
        if (results := list(_results(run, key, verdicts)))
    ]
    radii = (
        set.intersection(*(_radii(results) for _, results in tested)) if tested else set()
    )
    if not radii - {0.0}:
        return None
    eps = sorted(radii | {0.0})
    every = [_run_shares(run, results, eps, verdicts) for run, results in tested]
    if not all(each.broken.shape[1] for each in every):
        return None
    flags = tuple(dict.fromkeys(f for _, rs in tested for r in rs for f in r.flags))
    unfinished = unfinished_runs([results[0] for _, results in tested])
    n = min(each.broken.shape[1] for each in every)

    def cell(shares: Sequence[float]) -> TableCell:
        return TableCell(tuple(shares), n, flags, unfinished=unfinished)

    def at(place: int) -> RadiusShares:
        certified = [float(each.certified[place].mean()) for each in every]
        broken = [float(each.broken[place].mean()) for each in every]
        rest = [max(0.0, 1 - c - b) for c, b in zip(certified, broken, strict=True)]
        return RadiusShares(eps[place], cell(certified), cell(rest), cell(broken))

    return SharesOfGroup(
        group.label,
        key,
        tuple(at(place) for place in range(len(eps))),
        any(_certifies(verdicts[run.name, r.key], r) for run, rs in tested for r in rs),
        sum(each.contradictions for each in every),
    )


def _results(run: ReportRun, key: ShareKey, verdicts: LoadedVerdicts) -> Iterator[Result]:
    for result in run.results.values():
        if _key(result) == key and (run.name, result.key) in verdicts:
            yield result


def _radii(results: Sequence[Result]) -> set[float]:
    return {result.threat.eps for result in results if result.threat}


def _certifies(arrays: VerdictArrays, result: Result) -> bool:
    return result.kind == "certificate" or bool((arrays.outcomes == CERTIFIED).any())


def _run_shares(
    run: ReportRun,
    results: Sequence[Result],
    eps: Sequence[float],
    verdicts: LoadedVerdicts,
) -> _RunShares:
    """Combine all results of a run on the samples that all of them have."""
    arrays = [verdicts[run.name, result.key] for result in results]
    shared = np.array(
        sorted(set.intersection(*(set(a.samples.tolist()) for a in arrays))), dtype=np.int64
    )
    certified = np.zeros((len(eps), len(shared)), dtype=bool)
    broken = np.zeros_like(certified)
    for result, own in zip(results, arrays, strict=True):
        assert result.threat is not None
        order = np.argsort(own.samples)
        rows = order[np.searchsorted(own.samples[order], shared)]
        outcomes = own.outcomes[rows]
        survives = np.isin(outcomes, (ROBUST, CERTIFIED, NOT_CERTIFIED))
        misclassified = ~own.correct_at_start[rows]
        broken |= misclassified  # at every radius, that of the clean image among them
        at_least = np.array(eps)[:, None] >= result.threat.eps
        broken |= at_least & ~survives
        at_most = np.array(eps)[:, None] <= result.threat.eps
        certified |= at_most & (outcomes == CERTIFIED)
    both = certified & broken
    certified[0] = ~broken[0]  # radius 0 is the clean image alone
    return _RunShares(certified & ~broken, broken, int(both.any(0).sum()))
