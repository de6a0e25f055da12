"""The comparison as plain data: one row a group, one cell a result key."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot, isnan, sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from advnorm.records import Accuracy, Result, Run, Setting, ThreatRecord
from advnorm.report.completion_marks import unfinished_runs
from advnorm.report.groups import LoadedRun, RunGroup, load_groups

_BRANCH = re.compile(r"@(adversarial|clean|worst)(?=~|$)")


@dataclass(frozen=True)
class TableCell:
    """One accuracy: of one seed, or the mean over several."""

    fractions: tuple[float, ...]
    """One fraction a seed."""
    n: int
    """Samples a seed; the fewest where seeds differ."""
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Shown beside it as flags are, but no reason for doubt."""
    unfinished: tuple[str, ...] = ()
    """How far the runs were whose training was not finished: ``13 of 400 epochs``."""

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
    """Norm, objective and model, and what else tells this group from the others."""
    model: str
    norm: str
    objective: str
    seeds: tuple[str, ...]
    cells: dict[str, TableCell | None]
    """All rows of a table have the same keys in the same order."""
    alarms: tuple[str, ...]
    members: tuple["ReportRow", ...] = ()
    """Each seed's own row; empty in such a row."""
    unlike: str = ""
    """In what its cells were not measured alike: other weights, other sample counts."""


def comparison_rows(runs: Sequence[Run]) -> list[ReportRow]:
    """Return one row a group of runs that differ only in their seed.

    Over seeds a cell has the mean and its standard error; of several runs of one seed the
    first counts. Columns: clean, then what has no adversary, then norm, attack and radius;
    the branches of a mixture norm, and other data sets than the run's, are columns of
    their own.
    """
    return rows(load_groups(runs))


def rows(groups: Sequence[RunGroup]) -> list[ReportRow]:
    """Return the rows of groups that were read before."""
    keys = columns([member for group in groups for member in group.members])
    return [_group_row(group, keys) for group in groups]


def columns(runs: Sequence[LoadedRun]) -> list[str]:
    """Return all result keys in the order of a table's columns."""
    results = {result.key: result for run in runs for result in run.results.values()}
    return sorted(results, key=lambda key: _order(results[key]))


def without_branch(key: str) -> str:
    """Return a result key without the branch of a mixture norm.

    >>> without_branch("pgd-40_linf_0.3@clean"), without_branch("clean@worst~mnist-c-fog")
    ('pgd-40_linf_0.3', 'clean~mnist-c-fog')
    """
    return _BRANCH.sub("", key)


def branch_label(branch: str | None) -> str:
    """Name the branch of a mixture norm that answered; nothing for any other norm."""
    return f"{branch} branch" if branch else ""


def key_label(key: str) -> str:
    """Write a result key for people.

    >>> key_label("pgd-40_linf_0.3@clean"), key_label("clean@worst~mnist-c-fog")
    ('pgd-40_linf_0.3, clean branch', 'clean on mnist-c-fog, worst branch')
    """
    branch = _BRANCH.search(key)
    name = without_branch(key).replace("~", " on ")
    return f"{name}, {branch_label(branch[1])}" if branch else name


def unlike(results: Sequence[Result]) -> str:
    """Say in what results under one key differ, so that nobody compares them unwarned."""
    told = _differences(
        {"data": r.data, "split": r.split, "statistics": r.statistics}
        | r.settings
        | {"weights": _weights(r), "n": r.accuracy.n}
        for r in results
    )
    return f"not measured alike in all runs: {told}" if told else ""


def _mixed(runs: Sequence[LoadedRun]) -> str:
    """Say in what the results of some runs differ, beyond their attacks."""
    results = [result for run in runs for result in run.results.values()]
    told = [_differences({"weights": _weights(r)} for r in results)]
    for run in runs:  # one that went on has results of earlier weights
        for kind in dict.fromkeys(map(_weights, run.results.values())):
            own = [r for r in run.results.values() if _weights(r) == kind]
            told.append(_differences({"weights": r.weights[:_NAMED]} for r in own))
    for data in dict.fromkeys(
        r.data for r in results
    ):  # each has its own number of samples
        told.append(_differences({"n": r.accuracy.n} for r in results if r.data == data))
    shown = ", ".join(dict.fromkeys(filter(None, told)))
    return f"these results are not measured alike: {shown}" if shown else ""


_NAMED = len("best-00000000 sha256:01234567")
"""How much of the name and digest of weights is shown."""


def _weights(result: Result) -> str:
    """Return the kind of checkpoint: ``best``, or ``state`` for the last one."""
    return result.weights.partition("-")[0]


def _differences(settings: Iterable[Mapping[str, Setting]]) -> str:
    """Return e.g. ``n is 100 or 1000``, for each name that has several values."""
    every = list(settings)
    names = dict.fromkeys(name for setting in every for name in setting)
    told = []
    for name in names:
        values = dict.fromkeys(str(setting.get(name, "unset")) for setting in every)
        if len(values) > 1:
            told.append(f"{name} is {' or '.join(values)}")
    return ", ".join(told)


def threat_label(threat: ThreatRecord) -> str:
    """Name norm and radius.

    >>> threat_label(ThreatRecord(norm="linf", eps=8 / 255))
    'L∞ 8/255'
    """
    return f"{norm_label(threat.norm)} {eps_label(threat.eps)}"


def norm_label(norm: str) -> str:
    """Name a norm for people."""
    return {"linf": "L∞", "l2": "L2"}.get(norm.lower(), norm)


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
    adversary, other = result.threat is not None, result.condition != "clean"
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
        unlike=whole.unlike,
    )


def _row(
    first: LoadedRun, label: str, runs: Sequence[LoadedRun], keys: Sequence[str]
) -> ReportRow:
    return ReportRow(
        name=first.name,
        label=label,
        model=first.choice("model"),
        norm=first.choice("norm"),
        objective=first.choice("objective"),
        seeds=tuple(run.seed for run in runs),
        cells={key: _cell(key, runs) for key in keys},
        alarms=first.alarms,
        unlike=_mixed(runs),
    )


def _cell(key: str, runs: Sequence[LoadedRun]) -> TableCell | None:
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
