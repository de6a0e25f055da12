"""Figures as small inline SVG panels. Names stay out of them: the page's legend has those.

Each panel is narrow enough for a telephone, and the page lets them flow. Text and grid take
the page's colours, so that one figure serves a light and a dark page.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isfinite, isnan, nan
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from advnorm.records import Accuracy, Epoch, result_key
from advnorm.report.groups import Group, Loaded
from advnorm.report.looks import OTHER, Look
from advnorm.report.rows import (
    Cell,
    Row,
    branch_label,
    eps_label,
    norm_label,
    without_branch,
)

Looks = Mapping[str, Look]
Family = dict[str | None, dict[float, str]]
"""The result keys of one panel: by branch of a mixture norm, then by radius."""


class Named(NamedTuple):
    """What a panel of accuracies against the radius is about."""

    attack: str
    norm: str
    data: str
    """Empty for the runs' own."""


MOST_RUNS = 40
"""Training curves beyond these are left out."""
MOST_PANELS = 9
"""Panels of attack and norm beyond these are left out."""
FLAGGED = " (flagged)"
LINES = {None: "-", "adversarial": "--", "clean": ":", "worst": "-."}
_FILLS: Any = {None: "full", "adversarial": "full", "clean": "none", "worst": "left"}
_INK, _GRID = "#010203", "#040506"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "advnorm",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
}


@dataclass(frozen=True)
class Panel:
    """One drawing: its title and description are text of the page."""

    title: str
    alt: str
    svg: Markup


def scatter(groups: Sequence[Group], looks: Looks, key: str, prefix: str) -> Panel | None:
    """Draw clean against robust accuracy: a point a run and branch, both 95% intervals."""
    points = [p for group in groups for run in group.members for p in _points(run, key)]
    if not points:
        return None
    labels = {run.name: group.label for group in groups for run in group.members}
    with rc_context(STYLE):
        axes = plot("clean accuracy (%)", "accuracy under attack (%)", size=(4.8, 3.5))
        for point in points:
            look = looks[labels[point.run]]
            axes.errorbar(
                100 * point.clean.rate,
                100 * point.robust.rate,
                xerr=_bars(point.clean),
                yerr=_bars(point.robust),
                fmt=look.marker,
                fillstyle=_FILLS[point.branch],
                color=look.colour,
                markersize=7,
                elinewidth=0.8,
                zorder=1 if look is OTHER else 2,
            )
            if point.flagged:
                _doubt(axes, 100 * point.clean.rate, 100 * point.robust.rate)
        svg = svg_of(axes, prefix)
    told = [
        f"{branched(p.run, p.branch)} {p.clean.rate:.1%} clean, {p.robust.rate:.1%} robust"
        f"{FLAGGED if p.flagged else ''}"
        for p in points
    ]
    return Panel("Clean against robust accuracy", listed(told), svg)


class Point(NamedTuple):
    """One run, or one branch of it."""

    run: str
    branch: str | None
    clean: Accuracy
    robust: Accuracy
    flagged: bool = False


def _points(run: Loaded, key: str) -> list[Point]:
    """Pair the accuracy under ``key`` with the clean one, each branch with its own."""
    found = []
    for name, result in run.results.items():
        data = result.data if result.other else None
        clean = run.results.get(result_key("clean", None, result.branch, data))
        if without_branch(name) == key and clean:
            point = Point(
                run.name,
                result.branch,
                clean.accuracy,
                result.accuracy,
                bool(result.flags),
            )
            found += [point] if point.clean.n and point.robust.n else []
    return found


def curves(groups: Sequence[Group], looks: Looks, prefix: str) -> list[Panel]:
    """Draw loss and validation accuracies by epoch: one line a run.

    A ring is the best checkpoint, a cross an epoch with an alarm. What no run has recorded
    is left out.
    """
    series: dict[str, list[Series]] = {}
    for label, run in _limited(groups, looks):
        for title, values in _measures(run.epochs).items():
            if any(map(isfinite, values)):
                epochs = [epoch.epoch for epoch in run.epochs]
                best = [i for i, epoch in enumerate(run.epochs) if epoch.best][-1:]
                alarms = [i for i, epoch in enumerate(run.epochs) if epoch.alarms]
                line = Series(label, run.name, epochs, values, best, alarms)
                series.setdefault(title, []).append(line)
    return [
        _curve(title, lines, looks, f"{prefix}{number}")
        for number, (title, lines) in enumerate(series.items())
    ]


@dataclass(frozen=True)
class Series:
    """One line of a training curve."""

    label: str
    name: str
    epochs: list[int]
    values: list[float]
    best: list[int]
    alarms: list[int]


def families(groups: Sequence[Group]) -> dict[Named, Family]:
    """Return the result keys for each attack, norm and data set that any run has."""
    found: dict[Named, Family] = {}
    for group in groups:
        for run in group.members:
            for key, result in run.results.items():
                if result.threat:
                    data = result.data if result.other else ""
                    named = Named(result.attack, result.threat.norm, data)
                    family = found.setdefault(named, {}).setdefault(result.branch, {})
                    family[result.threat.eps] = key
    return dict(sorted(found.items(), key=lambda item: (item[0].data, *item[0])))


def radii(
    found: Mapping[Named, Family],
    rows: Sequence[Row],
    looks: Looks,
    prefix: str,
) -> list[Panel]:
    """Draw accuracy against eps: a panel an attack and norm, with 95% bands.

    A line is a group; a mixture norm has one for each branch.
    """
    with rc_context(STYLE):
        return [
            _radius(named, family, rows, looks, f"{prefix}{number}")
            for number, (named, family) in enumerate(list(found.items())[:MOST_PANELS])
        ]


def _radius(
    named: Named,
    family: Family,
    rows: Sequence[Row],
    looks: Looks,
    prefix: str,
) -> Panel:
    axes = plot(f"radius eps ({norm_label(named.norm)})", "accuracy (%)")
    told = []
    for row in rows:
        for branch, keys in family.items():
            clean = result_key("clean", None, branch, named.data or None)
            known = _by_radius(row, {0.0: clean, **keys})
            if looks[row.label] is not OTHER and known:
                draw(axes, known, looks[row.label], LINES[branch])
                shown = (f"{told_of(c)} at {eps_label(e)}" for e, c in known.items())
                told.append(f"{branched(row.label, branch)}: " + ", ".join(shown))
    axes.set_ylim(0, 100)
    ticks = [0.0, *sorted({eps for keys in family.values() for eps in keys})]
    if len(ticks) <= 6:
        axes.set_xticks(ticks, [eps_label(eps) for eps in ticks])
    title = f"{named.attack}, {norm_label(named.norm)}"
    title += f", on {named.data}" if named.data else ""
    return Panel(title, listed(told), svg_of(axes, prefix))


def _by_radius(row: Row, keys: Mapping[float, str]) -> dict[float, Cell]:
    cells = {eps: row.cells.get(key) for eps, key in sorted(keys.items())}
    return {eps: cell for eps, cell in cells.items() if cell and not isnan(cell.rate)}


def draw(axes: Axes, known: Mapping[float, Cell], look: Look, style: str) -> None:
    """Draw one line of accuracies with its 95% band; a flagged one has a "!" beside it."""
    rates = [100 * cell.rate for cell in known.values()]
    low = [100 * cell.interval[0] for cell in known.values()]
    high = [100 * cell.interval[1] for cell in known.values()]
    eps = list(known)
    axes.fill_between(eps, low, high, color=look.colour, alpha=0.13, linewidth=0)
    axes.plot(eps, rates, color=look.colour, marker=look.marker, linestyle=style)
    for place, cell in known.items():
        if cell.flags:
            _doubt(axes, place, 100 * cell.rate)


def _doubt(axes: Axes, x: float, y: float) -> None:
    """Write a "!" beside a point that is flagged."""
    axes.annotate("!", (x, y), (5, 3), textcoords="offset points", weight="bold", size=12)


def told_of(cell: Cell) -> str:
    """Write an accuracy for a description, with its doubt."""
    return f"{cell.rate:.1%}{FLAGGED if cell.flags else ''}"


def branched(name: str, branch: str | None) -> str:
    """Name a line: the group, and the branch of a mixture norm."""
    return f"{name}, {branch_label(branch)}" if branch else name


def _limited(groups: Sequence[Group], looks: Looks) -> list[tuple[str, Loaded]]:
    runs = [
        (g.label, run) for g in groups if looks[g.label] is not OTHER for run in g.members
    ]
    return runs[:MOST_RUNS]


def _measures(epochs: Sequence[Epoch]) -> dict[str, list[float]]:
    return {
        "Training loss": [e.loss for e in epochs],
        "Validation accuracy, clean": [_percent(e.validation_clean) for e in epochs],
        "Validation accuracy, under attack": [
            _percent(e.validation_robust) for e in epochs
        ],
    }


def _curve(title: str, lines: Sequence[Series], looks: Looks, prefix: str) -> Panel:
    with rc_context(STYLE):
        axes = plot("epoch", "loss" if "loss" in title else "accuracy (%)")
        for line in lines:
            look = looks[line.label]
            alone = len(line.epochs) == 1
            axes.plot(
                line.epochs,
                line.values,
                color=look.colour,
                marker=look.marker if alone else "none",
                alpha=0.9,
            )
            for where, marker, size in ((line.best, "o", 6.0), (line.alarms, "x", 6.0)):
                axes.plot(
                    [line.epochs[i] for i in where],
                    [line.values[i] for i in where],
                    linestyle="none",
                    marker=marker,
                    markersize=size,
                    markerfacecolor="none",
                    markeredgecolor=look.colour,
                )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        svg = svg_of(axes, prefix)
    told = [f"{line.name} ends at {line.values[-1]:.3g}" for line in lines]
    return Panel(title, listed(told), svg)


def plot(xlabel: str, ylabel: str, *, size: tuple[float, float] = (4.2, 3.0)) -> Axes:
    """Return empty axes of a panel's size."""
    axes = Figure(figsize=size, layout="constrained").add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    return axes


def svg_of(axes: Axes, prefix: str) -> Markup:
    """Return inline SVG: no prolog, page colours, and ids that no other figure has."""
    file = StringIO()
    figure = axes.get_figure(root=True)
    assert figure is not None
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{prefix}-", text)
    text = text.replace(_INK, "currentColor").replace(_GRID, "var(--grid)")
    return Markup(text)  # only numbers and the words of this file are in it


def _bars(accuracy: Accuracy) -> list[list[float]]:
    low, high = accuracy.interval
    below, above = max(0.0, accuracy.rate - low), max(0.0, high - accuracy.rate)
    return [[100 * below], [100 * above]]


def _percent(accuracy: Accuracy | None) -> float:
    return 100 * accuracy.rate if accuracy else nan


def listed(items: Iterable[str], most: int = 12) -> str:
    """Write the first items of a description, and how many more there are."""
    told = list(items)
    more = [f"and {len(told) - most} more"] if len(told) > most else []
    return "; ".join(told[:most] + more)
