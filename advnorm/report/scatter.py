"""Clean against robust accuracy: a point a run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib import rc_context

from advnorm.records import Accuracy, result_key
from advnorm.report.completion_marks import marked, unfinished
from advnorm.report.figures import (
    FLAGGED,
    STYLE,
    Looks,
    Panel,
    branched,
    doubt,
    listed,
    plot,
    progress,
    svg_of,
)
from advnorm.report.groups import Group, Loaded
from advnorm.report.rows import without_branch
from advnorm.report.styles import OTHER

_FILLS: Any = {None: "full", "adversarial": "full", "clean": "none", "worst": "left"}


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
                100 * point.clean.fraction,
                100 * point.robust.fraction,
                xerr=_bars(point.clean),
                yerr=_bars(point.robust),
                fmt=look.marker,
                fillstyle=_FILLS[point.branch],
                color=look.colour,
                markersize=7,
                elinewidth=0.8,
                zorder=1 if look is OTHER else 2,
            )
            place = 100 * point.clean.fraction, 100 * point.robust.fraction
            if point.flagged:
                doubt(axes, *place)
            if point.unfinished:
                progress(axes, *place, point.unfinished)
        svg = svg_of(axes, prefix)
    told = [
        f"{branched(p.run, p.branch)} {p.clean.fraction:.1%} clean, "
        f"{p.robust.fraction:.1%} robust"
        f"{FLAGGED if p.flagged else ''}"
        f"{f' ({marked(p.unfinished)})' if p.unfinished else ''}"
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
    unfinished: tuple[str, ...] = ()
    """How far training was, where it was not finished."""


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
                unfinished([result]) or unfinished([clean]),
            )
            found += [point] if point.clean.n and point.robust.n else []
    return found


def _bars(accuracy: Accuracy) -> list[list[float]]:
    low, high = accuracy.interval
    below, above = max(0.0, accuracy.fraction - low), max(0.0, high - accuracy.fraction)
    return [[100 * below], [100 * above]]
