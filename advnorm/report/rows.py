"""The comparison as plain data: a row for each group, a cell for each result key."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot, isnan, sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from advnorm.records import Accuracy, Result, Run, Setting, ThreatRecord, result_key
from advnorm.report.completion_marks import unfinished_runs
from advnorm.report.groups import ReportRun, RunGroup, load_groups


@dataclass(frozen=True)
class TableCell:
    """One accuracy: of one seed, or the mean over seeds."""

    fractions: tuple[float, ...]
    """The accuracy of each seed."""
    n: int
    """Samples of a seed; the smallest number if seeds differ."""
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Shown beside it like flags, but no reason for doubt."""
    unfinished: tuple[str, ...] = ()
    """The progress of the runs that were not finished: ``13 of 400 epochs``."""

    @property
    def fraction(self) -> float:
        """The mean over seeds."""
        return fmean(self.fractions)

    @property
    def error(self) -> float | None:
        """The standard error of the mean over seeds; ``None`` for one seed."""
        if len(self.fractions) < 2:
            return None
        return stdev(self.fractions) / sqrt(len(self.fractions))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95% interval: Wilson's for the test sample; over seeds, Student's t as well.

        The two are independent sources of error, so their half-widths add in quadrature.

        >>> low, high = TableCell(fractions=(0.5, 0.5), n=100).interval
        >>> round(low, 3), round(high, 3)
        (0.404, 0.596)
        """
        if isnan(self.fraction):
            return (0.0, 1.0)
        low, high = Accuracy(correct=round(self.fraction * self.n), n=self.n).interval
        if self.error is None:
            return (low, high)
        spread = float(stdtrit(len(self.fractions) - 1, 0.975)) * self.error
        below, above = max(0.0, self.fraction - low), max(0.0, high - self.fraction)
        return (
            max(0.0, self.fraction - hypot(below, spread)),
            min(1.0, self.fraction + hypot(above, spread)),
        )

    def __str__(self) -> str:
        if isnan(self.fraction):
            return "no samples"
        if self.error is not None:
            return f"{self.fraction:.1%} ± {100 * self.error:.1f}"
        low, high = self.interval
        return f"{self.fraction:.1%} [{100 * low:.1f}, {100 * high:.1f}]"


@dataclass(frozen=True)
class ReportRow:
    """One group of runs, or one run of a group."""

    name: str
    label: str
    """Norm, objective and model, and what else distinguishes the group."""
    model: str
    norm: str
    objective: str
    seeds: tuple[str, ...]
    cells: dict[str, TableCell | None]
    """All rows of a table have the same keys in the same order."""
    alarms: tuple[str, ...]
    members: tuple["ReportRow", ...] = ()
    """A row for each run of a group; empty in such a row."""
    inconsistency: str = ""
    """How its cells differ in what must be equal: weights, numbers of samples."""


def comparison_rows(runs: Sequence[Run]) -> list[ReportRow]:
    """Return a row for each group of runs that differ only in their seed.

    Over seeds a cell has the mean and its standard error; of several runs of one seed the
    first counts. Columns: clean, then conditions without an adversary, then by norm, attack
    and radius. The branches of a mixture norm, and other data sets than the run's, have
    their own columns.
    """
    return group_rows(load_groups(runs))


def group_rows(groups: Sequence[RunGroup]) -> list[ReportRow]:
    """Return the rows of loaded groups."""
    keys = columns([member for group in groups for member in group.members])
    return [_group_row(group, keys) for group in groups]


def columns(runs: Sequence[ReportRun]) -> list[str]:
    """Return all result keys in the order of the table's columns."""
    results = {result.key: result for run in runs for result in run.results.values()}
    return sorted(results, key=lambda key: _order(results[key]))


def branch_label(branch: str | None) -> str:
    """Name the branch of a mixture norm; empty for any other norm."""
    return f"{branch} branch" if branch else ""


def result_label(result: Result) -> str:
    """Name a result for people: ``pgd-40_linf_0.3 on mnist-c:fog, clean branch``."""
    name = result_key(result.condition, result.threat)
    name += f" on {result.data}" if result.other else ""
    return f"{name}, {branch_label(result.branch)}" if result.branch else name


def condition_label(result: Result) -> str:
    """Name a result as people do: ``pgd-40, L∞ 0.3, clean branch, on mnist-c:fog``."""
    parts = (
        result.condition,
        threat_label(result.threat) if result.threat else "",
        branch_label(result.branch),
        f"on {result.data}" if result.other else "",
    )
    return ", ".join(filter(None, parts))


def data_set(result: Result) -> str:
    """Name the data of a result, whichever samples of them it has.

    ``digits[test=60,seed=2]`` are 60 samples of ``digits``, numbered as in all of them.
    """
    return result.data.partition("[")[0]


def column_inconsistency(results: Sequence[Result]) -> str:
    """Say how the results of one column differ in what a comparison needs to be equal."""
    differences = _differences(
        {"data": r.data, "split": r.split, "statistics": r.statistics}
        | r.settings
        | {"weights": _weights(r), "n": r.accuracy.n}
        for r in results
    )
    return f"the runs were measured differently: {differences}" if differences else ""


def _row_inconsistency(runs: Sequence[ReportRun]) -> str:
    """Say how the results of some runs differ, beyond their conditions."""
    results = [result for run in runs for result in run.results.values()]
    texts = [_differences({"weights": _weights(r)} for r in results)]
    for run in runs:  # a resumed run has results of earlier weights
        for kind in dict.fromkeys(map(_weights, run.results.values())):
            own = [r for r in run.results.values() if _weights(r) == kind]
            texts.append(_differences({"weights": r.weights[:_SHOWN_DIGEST]} for r in own))
    for data in dict.fromkeys(r.data for r in results):  # each has its number of samples
        texts.append(_differences({"n": r.accuracy.n} for r in results if r.data == data))
    joined = ", ".join(dict.fromkeys(filter(None, texts)))
    return f"these results were measured differently: {joined}" if joined else ""


_SHOWN_DIGEST = len("best-00000000 sha256:01234567")
"""Characters of the name and digest of weights that are shown."""


def _weights(result: Result) -> str:
    """Return the kind of checkpoint: ``best``, or ``state`` for the last one."""
    return result.weights.partition("-")[0]


def _differences(settings: Iterable[Mapping[str, Setting]]) -> str:
    """Return e.g. ``n is 100 or 1000``, for each name that has several values."""
    every = list(settings)
    names = dict.fromkeys(name for setting in every for name in setting)
    texts = []
    for name in names:
        values = dict.fromkeys(str(setting.get(name, "unset")) for setting in every)
        if len(values) > 1:
            texts.append(f"{name} is {' or '.join(values)}")
    return ", ".join(texts)


def threat_label(threat: ThreatRecord) -> str:
    """Name norm and radius.

    >>> threat_label(ThreatRecord(norm="linf", eps=8 / 255))
    'L∞ 8/255'
    """
    return f"{norm_label(threat.norm)} {eps_label(threat.eps)}"


def norm_label(norm: str) -> str:
    """Name a norm for people."""
    return {"linf": "L∞", "l2": "L2", "l1": "L1", "l0": "L0"}.get(norm.lower(), norm)


def eps_label(eps: float) -> str:
    """Write a radius as a short decimal, or as a fraction of 255 where it is one.

    >>> [eps_label(eps) for eps in (0.2, 8 / 255, 0.12345)]
    ['0.2', '8/255', '0.1235']
    """
    levels = round(eps * 255)
    if abs(round(eps, 3) - eps) > 1e-9 and levels and abs(levels / 255 - eps) < 1e-6:
        return f"{levels}/255"
    return f"{eps:.4g}"


def _order(result: Result) -> tuple[Any, ...]:
    natural = [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"(\d+)", result.condition)
    ]
    norm, eps = (result.threat.norm, result.threat.eps) if result.threat else ("", 0.0)
    adversary, other = result.threat is not None, result.kind != "clean"
    data = result.data if result.other else ""
    return (data, adversary, other, norm, natural, eps, result.branch or "")


def _group_row(group: RunGroup, keys: Sequence[str]) -> ReportRow:
    members = tuple(_row(run, group.label, [run], keys) for run in group.members)
    whole = _row(group.members[0], group.label, group.one_per_seed, keys)
    names = {run.recipe.get("name", run.name) for run in group.members}
    name = names.pop() if len(names) == 1 else group.label
    return ReportRow(
        name=members[0].name if len(members) == 1 else name,
        label=group.label,
        model=whole.model,
        norm=whole.norm,
        objective=whole.objective,
        seeds=whole.seeds,
        cells=whole.cells,
        alarms=tuple(dict.fromkeys(alarm for row in members for alarm in row.alarms)),
        members=members,
        inconsistency=whole.inconsistency,
    )


def _row(
    first: ReportRun, label: str, runs: Sequence[ReportRun], keys: Sequence[str]
) -> ReportRow:
    return ReportRow(
        name=first.name,
        label=label,
        model=first.choice("model"),
        norm=first.choice("norm"),
        objective=first.choice("objective"),
        seeds=tuple(sorted((run.seed for run in runs), key=lambda s: (len(s), s))),
        cells={key: _cell(key, runs) for key in keys},
        alarms=first.alarms,
        inconsistency=_row_inconsistency(runs),
    )


def _cell(key: str, runs: Sequence[ReportRun]) -> TableCell | None:
    results = [run.results[key] for run in runs if key in run.results]
    if not results:
        return None
    return TableCell(
        fractions=tuple(result.accuracy.fraction for result in results),
        n=min(result.accuracy.n for result in results),
        flags=tuple(dict.fromkeys(flag for result in results for flag in result.flags)),
        notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
        unfinished=unfinished_runs(results),
    )
