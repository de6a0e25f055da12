"""Clean against robust accuracy, and robust accuracy against its cost: a point a run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from advnorm.records import Accuracy, result_key
from advnorm.report.charts import (
    Axis,
    Chart,
    ChartMark,
    decade_axis,
    draw,
    fitted_percent_axis,
)
from advnorm.report.completion_marks import unfinished_runs, unfinished_text
from advnorm.report.figures import (
    FLAGGED,
    GroupStyles,
    SvgPanel,
    join_limited,
    with_branch,
)
from advnorm.report.groups import ReportRun, RunGroup

_FILLS = {None: "full", "adversarial": "full", "clean": "none", "worst": "pale"}


def scatter_panel(
    groups: Sequence[RunGroup], styles: GroupStyles, key: str, prefix: str
) -> SvgPanel | None:
    """Draw clean against robust accuracy: a point a run and branch, both 95% intervals."""
    points = [p for group in groups for run in group.members for p in _points(run, key)]
    if not points:
        return None
    labels = {run.name: group.label for group in groups for run in group.members}
    marks = tuple(
        ChartMark(
            x=p.clean.fraction,
            y=p.robust.fraction,
            text=f"{with_branch(p.run, p.branch)}: clean {p.clean}, robust {p.robust}"
            f"{p.marks}",
            style=styles[labels[p.run]],
            fill=_FILLS[p.branch],
            key=f"{labels[p.run]}\t{p.run}",
            x_interval=p.clean.interval,
            y_interval=p.robust.interval,
            flagged=p.flagged,
            note="; ".join(p.unfinished),
        )
        for p in points
    )
    texts = [
        f"{with_branch(p.run, p.branch)} {p.clean.fraction:.1%} clean, "
        f"{p.robust.fraction:.1%} robust{p.marks}"
        for p in points
    ]
    chart = Chart(
        "Clean against robust accuracy",
        join_limited(texts),
        fitted_percent_axis(
            "clean accuracy (%)", [e for p in points for e in p.clean.interval]
        ),
        _robust_axis(points),
        marks=marks,
    )
    return draw(chart, prefix)


def _robust_axis(points: Sequence["ScatterPoint"]) -> Axis:
    ends = [end for point in points for end in point.robust.interval]
    return fitted_percent_axis("accuracy under attack (%)", ends)


def cost_panel(
    groups: Sequence[RunGroup],
    styles: GroupStyles,
    key: str,
    seconds: Mapping[str, float],
    prefix: str,
) -> SvgPanel | None:
    """Draw robust accuracy against the time of training: a point a run and branch."""
    pairs = [
        (group.label, point)
        for group in groups
        for run in group.members
        if seconds.get(run.name)
        for point in _points(run, key)
    ]
    if not pairs:
        return None
    marks = tuple(
        ChartMark(
            x=seconds[p.run],
            y=p.robust.fraction,
            text=f"{with_branch(p.run, p.branch)}: {seconds[p.run]:.3g} s of training, "
            f"robust {p.robust}{p.marks}",
            style=styles[label],
            fill=_FILLS[p.branch],
            key=f"{label}\t{p.run}",
            y_interval=p.robust.interval,
            flagged=p.flagged,
        )
        for label, p in pairs
    )
    texts = [
        f"{with_branch(p.run, p.branch)} {p.robust.fraction:.1%} robust after "
        f"{seconds[p.run]:.3g} s{p.marks}"
        for _, p in pairs
    ]
    chart = Chart(
        "Robust accuracy against training time",
        join_limited(texts),
        decade_axis("training time (s)", [mark.x for mark in marks]),
        _robust_axis([point for _, point in pairs]),
        marks=marks,
    )
    return draw(chart, prefix)


class ScatterPoint(NamedTuple):
    """One run, or one branch of it."""

    run: str
    branch: str | None
    clean: Accuracy
    robust: Accuracy
    flagged: bool = False
    unfinished: tuple[str, ...] = ()
    """The progress of training, if it was not finished."""

    @property
    def marks(self) -> str:
        """What is said after its numbers."""
        unfinished = f" ({unfinished_text(self.unfinished)})" if self.unfinished else ""
        return f"{FLAGGED if self.flagged else ''}{unfinished}"


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
