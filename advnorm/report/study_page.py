"""The page of a study: the answer, the table, clean against robust, all comparisons."""

from collections.abc import Iterable

from advnorm.records import Study, StudyNumber
from advnorm.report.charts import Chart, ChartLine, ChartMark, draw, fitted_percent_axis
from advnorm.report.figures import SvgPanel, join_limited
from advnorm.report.study_table import CAPTION, notes_of, ordered_labels, table_of
from advnorm.report.styles import STYLES
from advnorm.report.template import environment

MOST_COMPARISONS = 200
"""The most comparisons of a page; the others are in ``study.json``."""


def render(study: Study) -> str:
    """Return the page of a study."""
    head, rows = table_of(study)
    return (
        environment()
        .get_template("study.html")
        .render(
            study=study,
            head=head,
            rows=list(zip(ordered_labels(study), rows, strict=True)),
            columns=[*study.columns, ""],
            caption=CAPTION,
            notes=notes_of(study),
            scatter=_scatter(study),
            comparisons=study.comparisons[:MOST_COMPARISONS],
            left_out=max(0, len(study.comparisons) - MOST_COMPARISONS),
        )
    )


def _scatter(study: Study) -> SvgPanel | None:
    """Draw clean against robust accuracy with both intervals, and the Pareto front."""
    points = {
        label: (row.numbers["clean"], row.numbers[study.headline])
        for label, row in study.rows.items()
        if {"clean", study.headline} <= set(row.numbers)
    }
    if not points:
        return None
    marks = tuple(
        ChartMark(
            clean.mean / 100,
            robust.mean / 100,
            f"{label}: clean {clean}, robust {robust}"
            f"{', on the Pareto front' if label in study.pareto else ''}",
            STYLES[number % len(STYLES)],
            key=label,
            x_interval=_interval(clean),
            y_interval=_interval(robust),
            note=label,
        )
        for number, (label, (clean, robust)) in enumerate(points.items())
    )
    front = sorted(
        (points[k][0].mean / 100, points[k][1].mean / 100)
        for k in study.pareto
        if k in points
    )
    texts = (
        f"{k} {c.mean:.1f}% clean, {r.mean:.1f}% robust" for k, (c, r) in points.items()
    )
    chart = Chart(
        "Clean against robust accuracy",
        join_limited(texts),
        fitted_percent_axis(
            "clean accuracy (%)", _ends(clean for clean, _ in points.values())
        ),
        fitted_percent_axis(
            "robust accuracy (%)", _ends(other for _, other in points.values())
        ),
        (ChartLine(tuple(front), "currentColor", ":"),),
        marks,
    )
    return draw(chart, "study")


def _interval(number: StudyNumber) -> tuple[float, float] | None:
    if number.low is None or number.high is None:
        return None
    return (number.low / 100, number.high / 100)


def _ends(numbers: Iterable[StudyNumber]) -> list[float]:
    ends = [
        end for number in numbers for end in (_interval(number) or (number.mean / 100,) * 2)
    ]
    return [min(1.0, max(0.0, end)) for end in ends]
