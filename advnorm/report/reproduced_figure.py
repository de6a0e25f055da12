"""A reproduced figure: a line a row, with the paper's numbers dotted beside it."""

from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from advnorm.records import Measured, Reproduction
from advnorm.report import figures
from advnorm.report.styles import OTHER_STYLE, STYLES, GroupStyle

_LOG_RATIO = 50.0
"""Values whose largest ratio is above it are drawn on a logarithmic axis."""


def draw_reproduction(record: Reproduction, prefix: str) -> figures.SvgPanel:
    """Draw the numbers of each row over the columns; the paper's are hollow and dotted."""
    places = _places(record.columns)
    with rc_context(figures.RC_PARAMS):
        axes = figures.new_axes(record.x, record.y, size=(5.2, 3.4))
        _scale(axes, record.columns, places)
        for number, cells in enumerate(record.rows.values()):
            _row(axes, cells, places, _style(number))
        _legend(axes, list(record.rows))
        svg = figures.to_svg(axes, prefix)
    texts = (f"{row}: {_description(cells)}" for row, cells in record.rows.items())
    return figures.SvgPanel(record.title, figures.join_limited(texts), svg)


def _places(columns: Sequence[str]) -> dict[str, float]:
    """Return the x of each column: its value, or its position if it is not a number."""
    try:
        return {column: float(column.rstrip("%")) for column in columns}
    except ValueError:
        return {column: float(place) for place, column in enumerate(columns)}


def _scale(axes: Axes, columns: Sequence[str], places: Mapping[str, float]) -> None:
    values = list(places.values())
    if values and min(values) > 0 and max(values) > _LOG_RATIO * min(values):
        axes.set_xscale("log")
    else:
        axes.set_xticks(values, labels=[figures.axis_text(column) for column in columns])


def _row(
    axes: Axes,
    cells: Mapping[str, Measured],
    places: Mapping[str, float],
    style: GroupStyle,
) -> None:
    points = sorted((places[column], cell) for column, cell in cells.items())
    axes.errorbar(
        [x for x, _ in points],
        [figures.finite_or_nan(cell.mean) for _, cell in points],
        yerr=[figures.finite_or_nan(2 * (cell.error or 0.0)) for _, cell in points],
        color=style.colour,
        marker=style.marker,
        capsize=2,
    )
    theirs = [(x, cell.published.value) for x, cell in points if cell.published]
    axes.plot(
        [x for x, _ in theirs],
        [figures.finite_or_nan(y) for _, y in theirs],
        color=style.colour,
        marker=style.marker,
        markerfacecolor="none",
        linestyle=":",
    )


def _legend(axes: Axes, names: Sequence[str]) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=_style(number).colour,
            marker=_style(number).marker,
            label=figures.axis_text(name),
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


def _style(number: int) -> GroupStyle:
    return STYLES[number] if number < len(STYLES) else OTHER_STYLE


def _description(cells: Mapping[str, Measured]) -> str:
    return ", ".join(f"{column} {cell.mean:.3g}" for column, cell in cells.items())
