"""The page of a study: the answer, the table, clean against robust, all comparisons."""

from matplotlib import rc_context

from advnorm.records import Study
from advnorm.report.figures import (
    RC_PARAMS,
    SvgPanel,
    axis_text,
    join_limited,
    new_axes,
    to_svg,
)
from advnorm.report.study_table import CAPTION, notes_of, table_of
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
            rows=rows,
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
    with rc_context(RC_PARAMS):
        axes = new_axes("clean accuracy (%)", "robust accuracy (%)", size=(5.6, 4.0))
        for number, (label, (clean, robust)) in enumerate(points.items()):
            style = STYLES[number % len(STYLES)]
            axes.errorbar(
                clean.mean,
                robust.mean,
                xerr=[[clean.mean - (clean.low or 0)], [(clean.high or 100) - clean.mean]],
                yerr=[
                    [robust.mean - (robust.low or 0)],
                    [(robust.high or 100) - robust.mean],
                ],
                fmt=style.marker,
                color=style.colour,
                elinewidth=0.8,
            )
            axes.annotate(
                axis_text(label),
                (clean.mean, robust.mean),
                (5, 4),
                textcoords="offset points",
                size=7,
            )
        front = sorted((points[k][0].mean, points[k][1].mean) for k in study.pareto)
        axes.plot(*zip(*front, strict=True), linestyle=":", color="gray", zorder=0)
        svg = to_svg(axes, "study")
    texts = (
        f"{k} {c.mean:.1f}% clean, {r.mean:.1f}% robust" for k, (c, r) in points.items()
    )
    return SvgPanel("Clean against robust accuracy", join_limited(texts), svg)
