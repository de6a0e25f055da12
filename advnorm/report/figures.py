"""Figures as small inline SVG panels; the page's legend names the groups.

Each panel is narrow enough for a phone, and the page wraps them. Text and grid take the
page's colours, so that one figure serves a light and a dark page.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from math import nan
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advnorm.report.completion_marks import unfinished_text
from advnorm.report.rows import TableCell, branch_label
from advnorm.report.styles import GroupStyle
from advnorm.text import cut, printable

GroupStyles = Mapping[str, GroupStyle]

MOST_RUNS = 40
"""The most training curves of a panel; further runs are left out."""
MOST_PANELS = 9
"""The most panels of a section; further ones are left out."""
FLAGGED = " (flagged)"
BRANCH_LINE_STYLES = {None: "-", "adversarial": "--", "clean": ":", "worst": "-."}
_LARGEST = 1e100
_INK, _GRID = "#010203", "#040506"
RC_PARAMS: Any = {
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
class SvgPanel:
    """One drawing; its title and its description are text of the page."""

    title: str
    alt: str
    svg: Markup


def new_axes(xlabel: str, ylabel: str, *, size: tuple[float, float] = (4.2, 3.0)) -> Axes:
    """Return empty axes of the size of a panel."""
    axes = Figure(figsize=size, layout="constrained").add_subplot()
    axes.set_xlabel(axis_text(xlabel))
    axes.set_ylabel(axis_text(ylabel))
    return axes


def axis_text(text: str) -> str:
    """Return a name for a figure: short, without formulas and control characters."""
    return printable(cut(text, 60)).replace("$", r"\$")


def finite_or_nan(value: float) -> float:
    """Return a value that axes can show; NaN, a gap in a line, for any other."""
    return value if abs(value) <= _LARGEST else nan


def to_svg(axes: Axes, prefix: str) -> Markup:
    """Return inline SVG: no prolog, the page's colours, ids that begin with ``prefix``."""
    file = StringIO()
    figure = axes.get_figure(root=True)
    assert figure is not None
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{prefix}-", text)
    text = text.replace(_INK, "currentColor").replace(_GRID, "var(--grid)")
    return Markup(text)  # it holds numbers and names through axis_text alone


def accuracy_text(cell: TableCell) -> str:
    """Write an accuracy for a description, with its warnings."""
    mark = f" ({unfinished_text(cell.unfinished)})" if cell.unfinished else ""
    return f"{cell.fraction:.1%}{FLAGGED if cell.flags else ''}{mark}"


def with_branch(name: str, branch: str | None) -> str:
    """Name a line: the group, and the branch if it has a mixture norm."""
    return f"{name}, {branch_label(branch)}" if branch else name


def join_limited(items: Iterable[str], most: int = 12) -> str:
    """Join the first items of a description, and say how many more there are."""
    texts = list(items)
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join(texts[:most] + more)
