"""Clean against robust accuracy: a point a run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib import rc_context

from advnorm.records import Accuracy, result_key
from advnorm.report.completion_marks import unfinished_runs, unfinished_text
from advnorm.report.figures import (
    FLAGGED,
    RC_PARAMS,
    GroupStyles,
    SvgPanel,
    join_limited,
    mark_flagged,
    mark_unfinished,
    new_axes,
    to_svg,
    with_branch,
)
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.styles import OTHER_STYLE

_FILLS: Any = {None: "full", "adversarial": "full", "clean": "none", "worst": "left"}


def scatter_panel(
    groups: Sequence[RunGroup], styles: GroupStyles, key: str, prefix: str
) -> SvgPanel | None:
    """Draw clean against robust accuracy: a point a run and branch, both 95% intervals."""
    points = [p for group in groups for run in group.members for p in _points(run, key)]
    if not points:
        return None
    labels = {run.name: group.label for group in groups for run in group.members}
    with rc_context(RC_PARAMS):
        axes = new_axes("clean accuracy (%)", "accuracy under attack (%)", size=(4.8, 3.5))
        for point in points:
            style = styles[labels[point.run]]
            axes.errorbar(
                100 * point.clean.fraction,
                100 * point.robust.fraction,
                xerr=_bars(point.clean),
                yerr=_bars(point.robust),
                fmt=style.marker,
                fillstyle=_FILLS[point.branch],
                color=style.colour,
                markersize=7,
                elinewidth=0.8,
                zorder=1 if style is OTHER_STYLE else 2,
            )
            place = 100 * point.clean.fraction, 100 * point.robust.fraction
            if point.flagged:
                mark_flagged(axes, *place)
            if point.unfinished:
                mark_unfinished(axes, *place, point.unfinished)
        svg = to_svg(axes, prefix)
    texts = [
        f"{with_branch(p.run, p.branch)} {p.clean.fraction:.1%} clean, "
        f"{p.robust.fraction:.1%} robust"
        f"{FLAGGED if p.flagged else ''}"
        f"{f' ({unfinished_text(p.unfinished)})' if p.unfinished else ''}"
        for p in points
    ]
    return SvgPanel("Clean against robust accuracy", join_limited(texts), svg)


class ScatterPoint(NamedTuple):
    """One run, or one branch of it."""

    run: str
    branch: str | None
    clean: Accuracy
    robust: Accuracy
    flagged: bool = False
    unfinished: tuple[str, ...] = ()
    """The progress of training, if it was not finished."""


def _points(run: ReportRun, key: str) -> list[ScatterPoint]:
    """Pair the accuracy under ``key`` with the clean one, each branch with its own."""
    points = []
    for result in run.results.values():
        data = result.data if result.other else None
        clean = run.results.get(result_key("clean", None, result.branch, data))
        if result.key_without_branch == key and clean:
            point = ScatterPoint(
                run.name,
                result.branch,
                clean.accuracy,
                result.accuracy,
                bool(result.flags),
                unfinished_runs([result]) or unfinished_runs([clean]),
            )
            points += [point] if point.clean.n and point.robust.n else []
    return points


def _bars(accuracy: Accuracy) -> list[list[float]]:
    low, high = accuracy.interval
    below, above = max(0.0, accuracy.fraction - low), max(0.0, high - accuracy.fraction)
    return [[100 * below], [100 * above]]
