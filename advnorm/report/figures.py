"""Figures as small inline SVG panels. Names stay out of them: the page's legend has those.

Each panel is narrow enough for a telephone, and the page lets them flow. Text and grid take
the page's colours, so that one figure serves a light and a dark page.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isfinite, isnan, nan
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from advnorm.records import Accuracy, Epoch
from advnorm.report.groups import Group, Loaded
from advnorm.report.looks import OTHER, Look
from advnorm.report.rows import Row, eps_label, norm_label

Looks = Mapping[str, Look]

MOST_RUNS = 40
"""Training curves beyond these are left out."""
MOST_PANELS = 9
"""Panels of attack and norm beyond these are left out."""
_INK, _GRID = "#010203", "#040506"
_STYLE: Any = {
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
    """Draw clean against robust accuracy: one point a run, with both 95% intervals."""
    points = [
        (group.label, run.name, run.results["clean"].accuracy, run.results[key].accuracy)
        for group in groups
        for run in group.members
        if "clean" in run.results and key in run.results
    ]
    points = [point for point in points if point[2].n and point[3].n]
    if not points:
        return None
    with rc_context(_STYLE):
        axes = _axes("clean accuracy (%)", "accuracy under attack (%)", size=(4.8, 3.5))
        for label, _, clean, robust in points:
            look = looks[label]
            axes.errorbar(
                100 * clean.rate,
                100 * robust.rate,
                xerr=_bars(clean),
                yerr=_bars(robust),
                fmt=look.marker,
                color=look.colour,
                markersize=7,
                elinewidth=0.8,
                zorder=1 if look is OTHER else 2,
            )
        svg = _svg(axes, prefix)
    told = [f"{name} {a.rate:.1%} clean, {b.rate:.1%} robust" for _, name, a, b in points]
    return Panel("Clean against robust accuracy", _list(told), svg)


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


def families(groups: Sequence[Group]) -> dict[tuple[str, str], dict[float, str]]:
    """Return the result keys by radius, for each attack and norm that any run has."""
    found: dict[tuple[str, str], dict[float, str]] = {}
    for group in groups:
        for run in group.members:
            for key, result in run.results.items():
                if result.threat:
                    family = found.setdefault((result.attack, result.threat.norm), {})
                    family[result.threat.eps] = key
    return dict(sorted(found.items()))


def radii(
    found: Mapping[tuple[str, str], Mapping[float, str]],
    rows: Sequence[Row],
    looks: Looks,
    prefix: str,
) -> list[Panel]:
    """Draw accuracy against eps: a panel an attack and norm, a line a group, 95% bands."""
    with rc_context(_STYLE):
        return [
            _radius(family, keys, rows, looks, f"{prefix}{number}")
            for number, (family, keys) in enumerate(list(found.items())[:MOST_PANELS])
        ]


def _radius(
    family: tuple[str, str],
    keys: Mapping[float, str],
    rows: Sequence[Row],
    looks: Looks,
    prefix: str,
) -> Panel:
    attack, norm = family
    axes = _axes(f"radius eps ({norm_label(norm)})", "accuracy (%)")
    told = []
    for row in rows:
        look = looks[row.label]
        cells = {0.0: row.cells.get("clean")}
        cells |= {eps: row.cells[key] for eps, key in sorted(keys.items())}
        known = {eps: cell for eps, cell in cells.items() if cell and not isnan(cell.rate)}
        if look is OTHER or not known:
            continue
        rates = [100 * cell.rate for cell in known.values()]
        low = [100 * cell.interval[0] for cell in known.values()]
        high = [100 * cell.interval[1] for cell in known.values()]
        eps = list(known)
        axes.fill_between(eps, low, high, color=look.colour, alpha=0.13, linewidth=0)
        axes.plot(eps, rates, color=look.colour, marker=look.marker)
        shown = (f"{r:.1f}% at {eps_label(e)}" for e, r in zip(eps, rates, strict=True))
        told.append(f"{row.label}: " + ", ".join(shown))
    axes.set_ylim(0, 100)
    ticks = [0.0, *sorted(keys)]
    if len(ticks) <= 6:
        axes.set_xticks(ticks, [eps_label(eps) for eps in ticks])
    return Panel(f"{attack}, {norm_label(norm)}", _list(told), _svg(axes, prefix))


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
    with rc_context(_STYLE):
        axes = _axes("epoch", "loss" if "loss" in title else "accuracy (%)")
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
        svg = _svg(axes, prefix)
    told = [f"{line.name} ends at {line.values[-1]:.3g}" for line in lines]
    return Panel(title, _list(told), svg)


def _axes(xlabel: str, ylabel: str, *, size: tuple[float, float] = (4.2, 3.0)) -> Axes:
    axes = Figure(figsize=size, layout="constrained").add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    return axes


def _svg(axes: Axes, prefix: str) -> Markup:
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


def _list(items: Iterable[str], most: int = 12) -> str:
    told = list(items)
    more = [f"and {len(told) - most} more"] if len(told) > most else []
    return "; ".join(told[:most] + more)
