"""Accuracy against the radius, and over the steps of an attack (xie2020, Figure 2)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan, log
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes

from advnorm.records import Result, result_key
from advnorm.report import figures
from advnorm.report.completion_marks import unfinished_runs
from advnorm.report.figures import GroupStyles, SvgPanel
from advnorm.report.groups import RunGroup
from advnorm.report.rows import (
    ReportRow,
    TableCell,
    eps_label,
    norm_label,
    threat_label,
)
from advnorm.report.styles import OTHER_STYLE

_DIGIT_WIDTH = 0.026  # as a share of the axis

KeysByRadius = dict[str | None, dict[float, str]]
"""The result keys of one panel: by branch of a mixture norm, then by radius."""


class RadiusPanelKey(NamedTuple):
    """What a panel of accuracies against the radius is about."""

    condition: str
    norm: str
    data: str
    """Empty for the runs' own data."""


class AccuracyLine(NamedTuple):
    """One line of a panel: the accuracies of a group, or of one branch of it, by x."""

    label: str
    branch: str | None
    cells: Mapping[float, TableCell]


def radius_keys(groups: Sequence[RunGroup]) -> dict[RadiusPanelKey, KeysByRadius]:
    """Return the result keys of each attack, norm and data set that any run has."""
    panels: dict[RadiusPanelKey, KeysByRadius] = {}
    for result in (r for g in groups for run in g.members for r in run.results.values()):
        if result.threat:
            data = result.data if result.other else ""
            panel = RadiusPanelKey(result.condition, result.threat.norm, data)
            keys = panels.setdefault(panel, {}).setdefault(result.branch, {})
            keys[result.threat.eps] = result.key
    return dict(sorted(panels.items(), key=lambda item: (item[0].data, *item[0])))


def radius_panels(
    panels: Mapping[RadiusPanelKey, KeysByRadius],
    rows: Sequence[ReportRow],
    styles: GroupStyles,
    prefix: str,
) -> list[SvgPanel]:
    """Draw accuracy against eps: one panel for each attack and norm, with 95% bands.

    A line is a group; a mixture norm has one for each branch.
    """
    shown = [row for row in rows if styles[row.label] is not OTHER_STYLE]
    with rc_context(figures.RC_PARAMS):
        return [
            _radius_panel(panel, keys, shown, styles, f"{prefix}{number}")
            for number, (panel, keys) in enumerate(
                list(panels.items())[: figures.MOST_PANELS]
            )
        ]


def _radius_panel(
    panel: RadiusPanelKey,
    keys: KeysByRadius,
    rows: Sequence[ReportRow],
    styles: GroupStyles,
    prefix: str,
) -> SvgPanel:
    axes = figures.new_axes(f"radius eps ({norm_label(panel.norm)})", "accuracy (%)")
    lines = [
        AccuracyLine(row.label, branch, _by_radius(row, {0.0: clean, **by_radius}))
        for row in rows
        for branch, by_radius in keys.items()
        for clean in [result_key("clean", None, branch, panel.data or None)]
    ]
    ticks = [0.0, *sorted({eps for by_radius in keys.values() for eps in by_radius})]
    if len(ticks) <= 6:
        axes.set_xticks(ticks, [eps_label(eps) for eps in ticks])
    title = f"{panel.condition}, {norm_label(panel.norm)}"
    title += f", on {panel.data}" if panel.data else ""
    text = _draw(axes, lines, styles, lambda eps: f"at {eps_label(eps)}")
    return SvgPanel(title, text, figures.to_svg(axes, prefix))


def _by_radius(row: ReportRow, keys: Mapping[float, str]) -> dict[float, TableCell]:
    cells = {eps: row.cells.get(key) for eps, key in sorted(keys.items())}
    return {eps: cell for eps, cell in cells.items() if cell and not isnan(cell.fraction)}


def _draw(
    axes: Axes,
    lines: Sequence[AccuracyLine],
    styles: GroupStyles,
    place: Callable[[float], str],
) -> str:
    """Draw lines from 0 to 100%, and describe them; ``place`` names a value of x."""
    texts = []
    for line in lines:
        if line.cells:
            linestyle = figures.BRANCH_LINE_STYLES[line.branch]
            figures.draw_accuracies(axes, line.cells, styles[line.label], linestyle)
            points = (
                f"{figures.accuracy_text(c)} {place(x)}" for x, c in line.cells.items()
            )
            name = figures.with_branch(line.label, line.branch)
            texts.append(f"{name}: {', '.join(points)}")
    axes.set_ylim(0, 100)
    return figures.join_limited(texts)


def step_titles(groups: Sequence[RunGroup]) -> dict[str, str]:
    """Return the title of each panel over steps, by result key without its branch."""
    return {
        result.key_without_branch: _step_title(result)
        for group in groups
        for run in group.one_per_seed
        for _, result in sorted(run.results.items())
        if result.curve
    }


def step_panels(
    groups: Sequence[RunGroup], styles: GroupStyles, prefix: str
) -> list[SvgPanel]:
    """Draw accuracy against the number of steps: one panel for each attack and radius.

    A line is a group with its 95% band; a mixture norm has one for each branch.
    """
    shown = [group for group in groups if styles[group.label] is not OTHER_STYLE]
    panels = list(step_titles(groups).items())[: figures.MOST_PANELS]
    with rc_context(figures.RC_PARAMS):
        return [
            _step_panel(title, list(_step_lines(shown, key)), styles, f"{prefix}{number}")
            for number, (key, title) in enumerate(panels)
        ]


def _step_panel(
    title: str, lines: Sequence[AccuracyLine], styles: GroupStyles, prefix: str
) -> SvgPanel:
    axes = figures.new_axes("steps of the attack", "accuracy (%)")
    axes.set_xscale("log")
    text = _draw(axes, lines, styles, lambda steps: f"after {steps:g}")
    counts = sorted({count for line in lines for count in line.cells})
    axes.set_xticks(counts, step_labels(counts))
    axes.minorticks_off()
    return SvgPanel(title, text, figures.to_svg(axes, prefix))


def step_labels(counts: Sequence[float]) -> list[str]:
    """Label step counts on a logarithmic axis: both ends, and what fits between them.

    >>> step_labels([9, 10, 20, 50, 100])
    ['9', '', '20', '50', '100']
    """
    texts = [f"{count:g}" for count in counts]
    length = log(counts[-1] / counts[0]) if counts else 0.0

    def fits(left: int, right: int) -> bool:
        room = log(counts[right] / counts[left]) / length
        return room >= _DIGIT_WIDTH * (len(texts[left]) + len(texts[right]) + 1) / 2

    last, labelled = len(counts) - 1, {0}
    for place in range(1, last):
        if fits(max(labelled), place) and fits(place, last):
            labelled.add(place)
    return [t if place in {*labelled, last} else "" for place, t in enumerate(texts)]


def _step_lines(groups: Sequence[RunGroup], key: str) -> Iterator[AccuracyLine]:
    """Yield the lines of one panel: each group's mean over seeds, by branch."""
    for group in groups:
        by_branch: dict[str | None, list[Result]] = {}
        for run in group.one_per_seed:
            for result in run.results.values():
                if result.key_without_branch == key and result.curve:
                    by_branch.setdefault(result.branch, []).append(result)
        for branch, results in by_branch.items():
            if cells := _by_steps(results):
                yield AccuracyLine(group.label, branch, cells)


def _by_steps(results: Sequence[Result]) -> dict[float, TableCell]:
    """Return the accuracies at the step counts that all of the results have."""
    counts = [n for n in sorted(results[0].curve) if all(n in r.curve for r in results)]
    accuracies = {n: [result.curve[n] for result in results] for n in counts}
    flags = tuple(dict.fromkeys(flag for result in results for flag in result.flags))
    unfinished = unfinished_runs(results)
    return {
        float(n): TableCell(
            tuple(a.fraction for a in over_seeds),
            min(a.n for a in over_seeds),
            flags,
            unfinished=unfinished,
        )
        for n, over_seeds in accuracies.items()
        if all(a.n for a in over_seeds)
    }


def _step_title(result: Result) -> str:
    assert result.threat is not None
    title = f"{result.condition}, {threat_label(result.threat)}, over steps"
    return f"{title}, on {result.data}" if result.other else title
