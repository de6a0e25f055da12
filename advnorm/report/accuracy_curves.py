"""Accuracy against the radius, and over the steps of an attack (xie2020, Figure 2)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan, log
from typing import NamedTuple

from advnorm.records import Result, result_key
from advnorm.report import figures
from advnorm.report.charts import (
    Axis,
    Chart,
    ChartLine,
    ChartMark,
    draw,
    linear_axis,
    log_axis,
    percent_axis,
)
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
from advnorm.report.styles import OTHER_STYLE, GroupStyle

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
    return [
        _radius_panel(panel, keys, shown, styles, f"{prefix}{number}")
        for number, (panel, keys) in enumerate(list(panels.items())[: figures.MOST_PANELS])
    ]


def _radius_panel(
    panel: RadiusPanelKey,
    keys: KeysByRadius,
    rows: Sequence[ReportRow],
    styles: GroupStyles,
    prefix: str,
) -> SvgPanel:
    lines = [
        AccuracyLine(row.label, branch, _by_radius(row, {0.0: clean, **by_radius}))
        for row in rows
        for branch, by_radius in keys.items()
        for clean in [result_key("clean", None, branch, panel.data or None)]
    ]
    radii = [0.0, *sorted({eps for by_radius in keys.values() for eps in by_radius})]
    axis = radius_axis(panel.norm, radii)
    title = f"{panel.condition}, {norm_label(panel.norm)}"
    title += f", on {panel.data}" if panel.data else ""
    return _draw(title, axis, lines, styles, lambda eps: f"at {eps_label(eps)}", prefix)


def radius_axis(norm: str, radii: Sequence[float]) -> Axis:
    """Return the axis of the radius; few radii are its ticks."""
    axis = linear_axis(f"radius eps ({norm_label(norm)})", radii)
    if len(radii) > 6:
        return axis
    return replace(axis, ticks=tuple((eps, eps_label(eps)) for eps in radii))


def _by_radius(row: ReportRow, keys: Mapping[float, str]) -> dict[float, TableCell]:
    cells = {eps: row.cells.get(key) for eps, key in sorted(keys.items())}
    return {eps: cell for eps, cell in cells.items() if cell and not isnan(cell.fraction)}


def _draw(
    title: str,
    axis: Axis,
    lines: Sequence[AccuracyLine],
    styles: GroupStyles,
    place: Callable[[float], str],
    prefix: str,
) -> SvgPanel:
    """Draw lines from 0 to 100% with their bands; ``place`` names a value of x."""
    shapes: list[ChartLine] = []
    marks: list[ChartMark] = []
    texts = []
    for line in filter(lambda line: line.cells, lines):
        name, style = figures.with_branch(line.label, line.branch), styles[line.label]
        shapes += _band(line, style.colour)
        marks += _marks(line, style, name, place)
        points = (f"{figures.accuracy_text(c)} {place(x)}" for x, c in line.cells.items())
        texts.append(f"{name}: {', '.join(points)}")
    shapes.sort(key=lambda shape: not shape.floor)  # bands lie below all lines
    alt, y = figures.join_limited(texts), percent_axis("accuracy (%)")
    return draw(Chart(title, alt, axis, y, tuple(shapes), tuple(marks)), prefix)


def _band(line: AccuracyLine, colour: str) -> list[ChartLine]:
    cells = line.cells.items()
    upper = tuple((x, cell.interval[1]) for x, cell in cells)
    lower = tuple((x, cell.interval[0]) for x, cell in cells)
    points = tuple((x, cell.fraction) for x, cell in cells)
    dash = figures.BRANCH_LINE_STYLES[line.branch]
    return [
        ChartLine(upper, colour, floor=lower, opacity=0.13, key=line.label),
        ChartLine(points, colour, dash, key=line.label),
    ]


def _marks(
    line: AccuracyLine, style: GroupStyle, name: str, place: Callable[[float], str]
) -> Iterator[ChartMark]:
    before: tuple[str, ...] = ()
    for x, cell in line.cells.items():
        low, high = cell.interval
        note = "; ".join(cell.unfinished) if cell.unfinished != before else ""
        before = cell.unfinished  # written once a line, and where it changes
        yield ChartMark(
            x,
            cell.fraction,
            f"{name} {place(x)}: {figures.accuracy_text(cell)}, 95% interval "
            f"{low:.1%} to {high:.1%}, n={cell.n}",
            style,
            key=line.label,
            flagged=bool(cell.flags),
            note=note,
        )


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
    return [
        _step_panel(title, list(_step_lines(shown, key)), styles, f"{prefix}{number}")
        for number, (key, title) in enumerate(panels)
    ]


def _step_panel(
    title: str, lines: Sequence[AccuracyLine], styles: GroupStyles, prefix: str
) -> SvgPanel:
    counts = sorted({count for line in lines for count in line.cells})
    ticks = list(zip(counts, step_labels(counts), strict=True))
    axis = log_axis("steps of the attack", ticks)
    return _draw(title, axis, lines, styles, lambda steps: f"after {steps:g}", prefix)


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
