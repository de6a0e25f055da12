"""One drawing of a diagnosis: curves, points or bars of one run or of many."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from advnorm.records import Panel, Series
from advnorm.report import figures
from advnorm.report.styles import GroupStyle

MOST_SERIES = 4
"""The most series that share a colour and differ in their line; more have own colours."""
MOST_POINTS = 300
"""The most points of a line; longer ones are subsampled."""
_LINE_STYLES: Any = ("-", "--", ":", "-.")
_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#c2528b",
    "#009e73",
    "#d55e00",
    "#56b4e9",
    "#8a8a8a",
    "#7a5195",
    "#a08c00",
    "#4d6b5f",
)
_MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*", "<", ">")


@dataclass(frozen=True)
class StyledPanel:
    """A panel of one run, with the label and the style of its group."""

    label: str
    style: GroupStyle
    panel: Panel


def can_overlay(panels: Sequence[Panel]) -> bool:
    """Tell whether the panels of several runs can share axes, a colour each."""
    names = {s.name for panel in panels for s in panel.series if not s.faint}
    kinds = {panel.kind for panel in panels}
    if kinds == {"bars"}:
        return len(names) == 1
    return kinds == {"lines"} and len(names) <= MOST_SERIES


def draw_overlay(title: str, shown: Sequence[StyledPanel], prefix: str) -> figures.SvgPanel:
    """Draw the panels of several runs in the same axes: colours are groups."""
    names = _names(s.panel for s in shown)
    with rc_context(figures.RC_PARAMS):
        axes = _axes(shown[0].panel)
        for place, styled in enumerate(shown):
            for series in styled.panel.series:
                if styled.panel.kind == "bars":
                    _bars(axes, series, styled.style.colour, place, len(shown))
                else:
                    style = (
                        _LINE_STYLES[names.index(series.name)] if not series.faint else "-"
                    )
                    _line(axes, series, styled.style.colour, style, styled.style.marker)
        _finish(axes, [s.panel for s in shown])
        if len(names) > 1:
            _legend(axes, names, ["#8a8a8a"] * len(names), _LINE_STYLES, None)
        svg = figures.to_svg(axes, prefix)
    ends = (f"{s.label}: {_ends(s.panel)}" for s in shown)
    return figures.SvgPanel(title, figures.join_limited(ends), svg)


def draw_single(title: str, shown: StyledPanel, prefix: str) -> figures.SvgPanel:
    """Draw the panel of one run by itself: colours are its series."""
    panel, names = shown.panel, _names([shown.panel])
    with rc_context(figures.RC_PARAMS):
        axes = _axes(panel)
        for series in panel.series:
            index = names.index(series.name) if series.name in names else 0
            colour = _COLOURS[index % len(_COLOURS)]
            marker = _MARKERS[index % len(_MARKERS)]
            if panel.kind == "points":
                axes.plot(
                    *_subsample(series, 4), marker, color=colour, markersize=3, alpha=0.6
                )
            elif panel.kind == "bars":
                _bars(axes, series, colour, index, len(names))
            else:
                _line(axes, series, colour, _LINE_STYLES[index % len(_LINE_STYLES)], marker)
        _finish(axes, [panel])
        if len(names) > 1:
            styles = ["none"] if panel.kind == "points" else _LINE_STYLES
            _legend(axes, names, _COLOURS, styles, _MARKERS)
        svg = figures.to_svg(axes, prefix)
    return figures.SvgPanel(title, _ends(panel), svg)


def _names(panels: Iterable[Panel]) -> list[str]:
    names = [s.name for panel in panels for s in panel.series if not s.faint]
    return list(dict.fromkeys(names))


def _axes(panel: Panel) -> Axes:
    return figures.new_axes(panel.x, panel.y)


def _line(axes: Axes, series: Series, colour: str, style: Any, marker: str) -> None:
    few = len(series.x) <= 12 and not series.faint
    axes.plot(
        *_subsample(series),
        color=colour,
        linestyle=style,
        marker=marker if few else "none",
        markersize=4,
        alpha=0.25 if series.faint else 0.9,
        linewidth=0.8 if series.faint else 1.5,
        zorder=1 if series.faint else 2,
    )


def _bars(axes: Axes, series: Series, colour: str, place: int, count: int) -> None:
    width = 0.8 / count
    bars = _finite_points(series)
    where = [x + (place - (count - 1) / 2) * width for x, _ in bars]
    axes.bar(where, [y for _, y in bars], width=width, color=colour)


def _finite_points(series: Series) -> list[tuple[float, float]]:
    """Return the points of a series that axes can show."""
    points = zip(
        map(figures.finite_or_nan, series.x),
        map(figures.finite_or_nan, series.y),
        strict=True,
    )
    return [(x, y) for x, y in points if isfinite(x) and isfinite(y)]


def _subsample(series: Series, more: int = 1) -> tuple[list[float], list[float]]:
    stride = max(1, -(-len(series.x) // (more * MOST_POINTS)))
    places = [figures.finite_or_nan(value) for value in series.x[::stride]]
    return places, [figures.finite_or_nan(value) for value in series.y[::stride]]


def _finish(axes: Axes, panels: Sequence[Panel]) -> None:
    """Set scales and ticks: logarithmic beyond two decades, whole numbers for counts."""
    points = [
        point for panel in panels for s in panel.series for point in _finite_points(s)
    ]
    values = [y for _, y in points]
    positive = [value for value in values if value > 0]
    bars = panels[0].kind == "bars"
    if any(p.log for p in panels) and positive and max(positive) > 100 * min(positive):
        axes.set_yscale("log")
        if bars:  # a value that is a rounding error gets no decades of its own
            axes.set_ylim(bottom=max(min(positive), 1e-4 * max(positive)) / 2)
    elif bars and not positive:
        axes.set_ylim(min(values, default=0.0) or 0.0, 1.0)
    if panels[0].y == "accuracy":
        axes.set_ylim(-0.02, 1.02)
    if names := panels[0].names:
        axes.set_xticks(range(len(names)), [figures.axis_text(name) for name in names])
    else:
        whole = all(x == int(x) for x, _ in points)
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=whole))
    if not values:
        axes.text(0.5, 0.5, "nothing to draw", transform=axes.transAxes, ha="center")


def _legend(
    axes: Axes,
    names: Sequence[str],
    colours: Sequence[str],
    styles: Sequence[Any],
    markers: Sequence[str] | None,
) -> None:
    """Name the series above the axes, where they hide no data."""
    handles = [
        Line2D(
            [],
            [],
            color=colours[i % len(colours)],
            linestyle=styles[i % len(styles)],
            marker=markers[i % len(markers)] if markers else "none",
            markersize=4,
            label=figures.axis_text(name),
        )
        for i, name in enumerate(names)
    ]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=min(len(names), 2 if max(map(len, names)) > 14 else 3),
        frameon=False,
        fontsize=8,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.2,
    )


def _ends(panel: Panel) -> str:
    """Describe in words where each line ends."""
    ends = [f"{s.name} {s.y[-1]:.3g}" for s in panel.series if s.y and not s.faint]
    return figures.join_limited(ends, 6)
