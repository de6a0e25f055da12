"""Accuracy over attack steps, drawn from results that are curves (xie2020, Figure 2)."""

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import NamedTuple

from matplotlib import rc_context

from advnorm.records import Result
from advnorm.report import figures
from advnorm.report.completion_marks import unfinished_runs
from advnorm.report.groups import RunGroup
from advnorm.report.rows import TableCell, threat_label, without_branch
from advnorm.report.styles import OTHER_STYLE

_LETTER = 0.026  # width of a digit, as a share of the axis


class StepCurve(NamedTuple):
    """One line: a group, or one branch of it, under one attack."""

    label: str
    branch: str | None
    known: Mapping[float, TableCell]
    """By number of steps."""


def titles(groups: Sequence[RunGroup]) -> dict[str, str]:
    """Return the title of each panel, by result key without its branch."""
    return {
        without_branch(key): _title(result)
        for group in groups
        for run in group.one_per_seed
        for key, result in sorted(run.results.items())
        if result.curve
    }


def steps(
    groups: Sequence[RunGroup], styles: figures.GroupStyles, prefix: str
) -> list[figures.SvgPanel]:
    """Draw accuracy against the number of steps: a panel an attack and radius.

    A line is a group with its 95% band; a mixture norm has one for each branch.
    """
    shown = [group for group in groups if styles[group.label] is not OTHER_STYLE]
    found = list(titles(groups).items())[: figures.MOST_PANELS]
    with rc_context(figures.RC_PARAMS):
        return [
            _panel(title, list(_walks(shown, key)), styles, f"{prefix}{number}")
            for number, (key, title) in enumerate(found)
        ]


def _panel(
    title: str, walks: Sequence[StepCurve], styles: figures.GroupStyles, prefix: str
) -> figures.SvgPanel:
    axes = figures.new_axes("steps of the attack", "accuracy (%)")
    axes.set_xscale("log")
    told = []
    for walk in walks:
        figures.draw_accuracies(
            axes, walk.known, styles[walk.label], figures.BRANCH_LINE_STYLES[walk.branch]
        )
        shown = (f"{figures.accuracy_text(c)} after {n:g}" for n, c in walk.known.items())
        told.append(f"{figures.with_branch(walk.label, walk.branch)}: " + ", ".join(shown))
    axes.set_ylim(0, 100)
    counts = sorted({count for walk in walks for count in walk.known})
    axes.set_xticks(counts, labels(counts))
    axes.minorticks_off()
    return figures.SvgPanel(title, figures.join_limited(told), figures.to_svg(axes, prefix))


def labels(counts: Sequence[float]) -> list[str]:
    """Label step counts on a logarithmic axis: both ends, and what has room between them.

    >>> labels([9, 10, 20, 50, 100])
    ['9', '', '20', '50', '100']
    """
    texts = [f"{count:g}" for count in counts]
    whole = log(counts[-1] / counts[0]) if counts else 0.0

    def apart(one: int, other: int) -> bool:
        room = log(counts[other] / counts[one]) / whole
        return room >= _LETTER * (len(texts[one]) + len(texts[other]) + 1) / 2

    last, shown = len(counts) - 1, {0}
    for place in range(1, last):
        if apart(max(shown), place) and apart(place, last):
            shown.add(place)
    return [t if place in {*shown, last} else "" for place, t in enumerate(texts)]


def _walks(groups: Sequence[RunGroup], key: str) -> Iterator[StepCurve]:
    """Yield the lines of one panel: each group's mean over seeds, by branch."""
    for group in groups:
        names = [name for run in group.one_per_seed for name in run.results]
        for name in dict.fromkeys(n for n in names if without_branch(n) == key):
            results = [
                run.results[name] for run in group.one_per_seed if name in run.results
            ]
            known = _known([result for result in results if result.curve])
            if known:
                yield StepCurve(group.label, results[0].branch, known)


def _known(results: Sequence[Result]) -> dict[float, TableCell]:
    """Return the accuracies at the step counts that all of the results have."""
    if not results:
        return {}
    counts = [n for n in sorted(results[0].curve) if all(n in r.curve for r in results)]
    found = {n: [result.curve[n] for result in results] for n in counts}
    flags = tuple(dict.fromkeys(flag for result in results for flag in result.flags))
    far = unfinished_runs(results)
    return {
        float(n): TableCell(
            tuple(a.fraction for a in each), min(a.n for a in each), flags, unfinished=far
        )
        for n, each in found.items()
        if all(a.n for a in each)
    }


def _title(result: Result) -> str:
    assert result.threat is not None
    title = f"{result.condition}, {threat_label(result.threat)}, over steps"
    return f"{title}, on {result.data}" if result.other else title
