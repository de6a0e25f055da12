"""A reproduced figure whose columns are values: a line a row, the paper's beside it."""

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from advnorm.records import Measured, Reproduction
from advnorm.report import figures
from advnorm.report.styles import LOOKS, OTHER, Look

_DECADES = 50.0
"""Values that span more than this are drawn on a logarithmic axis."""


def lines(record: Reproduction, prefix: str) -> figures.Panel:
    """Draw the numbers of each row over the columns; hollow and dotted is the paper's."""
    places = _places(record.columns)
    with rc_context(figures.STYLE):
        axes = figures.plot(record.x, record.y, size=(5.2, 3.4))
        _scale(axes, record.columns, places)
        for number, cells in enumerate(record.rows.values()):
            _row(axes, cells, places, _look(number))
        _legend(axes, list(record.rows))
        svg = figures.svg_of(axes, prefix)
    told = (f"{row}: {_told(cells)}" for row, cells in record.rows.items())
    return figures.Panel(record.title, figures.listed(told), svg)


def _places(columns: Sequence[str]) -> dict[str, float]:
    """Return where each column is drawn: its value, or its place where it is a word."""
    try:
        return {column: float(column.rstrip("%")) for column in columns}
    except ValueError:
        return {column: float(place) for place, column in enumerate(columns)}


def _scale(axes: Axes, columns: Sequence[str], places: Mapping[str, float]) -> None:
    values = list(places.values())
    if values and min(values) > 0 and max(values) > _DECADES * min(values):
        axes.set_xscale("log")
    else:
        axes.set_xticks(values, labels=[figures.plain(column) for column in columns])


def _row(
    axes: Axes, cells: Mapping[str, Measured], places: Mapping[str, float], look: Look
) -> None:
    known = sorted((places[column], cell) for column, cell in cells.items())
    axes.errorbar(
        [x for x, _ in known],
        [figures.drawable(cell.mean) for _, cell in known],
        yerr=[figures.drawable(2 * (cell.error or 0.0)) for _, cell in known],
        color=look.colour,
        marker=look.marker,
        capsize=2,
    )
    theirs = [(x, cell.published.value) for x, cell in known if cell.published]
    axes.plot(
        [x for x, _ in theirs],
        [figures.drawable(y) for _, y in theirs],
        color=look.colour,
        marker=look.marker,
        markerfacecolor="none",
        linestyle=":",
    )


def _legend(axes: Axes, names: Sequence[str]) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=_look(number).colour,
            marker=_look(number).marker,
            label=figures.plain(name),
        )
        for number, name in enumerate(names)
    ]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=2,
        frameon=False,
        fontsize=8,
    )


def _look(number: int) -> Look:
    return LOOKS[number] if number < len(LOOKS) else OTHER


def _told(cells: Mapping[str, Measured]) -> str:
    return ", ".join(f"{column} {cell.mean:.3g}" for column, cell in cells.items())
