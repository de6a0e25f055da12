"""One chart for each group: the shares of certified, open and broken samples by radius."""

from collections.abc import Iterator, Sequence

from advnorm.report.accuracy_curves import radius_axis
from advnorm.report.charts import Chart, ChartLine, ChartMark, draw, percent_axis
from advnorm.report.completion_marks import unfinished_text
from advnorm.report.figures import MOST_PANELS, SvgPanel, join_limited
from advnorm.report.radius_shares import RadiusShares, SharesOfGroup
from advnorm.report.rows import TableCell, eps_label
from advnorm.report.styles import GroupStyle

COLOURS = {"certified": "#2e9152", "open": "#9db4c8", "broken": "#d9730d"}
"""From the bottom of the chart to its top."""


def share_panels(shares: Sequence[SharesOfGroup], prefix: str) -> list[SvgPanel]:
    """Draw the shares of each group as areas that add up to 100%."""
    return [
        _panel(each, f"{prefix}{number}")
        for number, each in enumerate(shares[:MOST_PANELS])
    ]


def _panel(shares: SharesOfGroup, prefix: str) -> SvgPanel:
    certified = tuple((s.eps, s.certified.fraction) for s in shares.shares)
    survived = tuple((s.eps, 1 - s.broken.fraction) for s in shares.shares)
    zero = tuple((s.eps, 0.0) for s in shares.shares)
    whole = tuple((s.eps, 1.0) for s in shares.shares)
    areas = zip(
        COLOURS.values(),
        (certified, survived, whole),
        (zero, certified, survived),
        strict=True,
    )
    lines = [ChartLine(top, colour, floor=low, opacity=0.75) for colour, top, low in areas]
    lines += [ChartLine(edge, "currentColor") for edge in (certified, survived)]
    chart = Chart(
        shares.title,
        join_limited(share_text(each) for each in shares.shares),
        radius_axis(shares.key.norm, [each.eps for each in shares.shares]),
        percent_axis("samples (%)"),
        tuple(lines),
        tuple(_marks(shares.shares)),
    )
    return draw(chart, prefix)


def _marks(shares: Sequence[RadiusShares]) -> Iterator[ChartMark]:
    """Yield a mark a radius, at the edge between what survived and what is broken."""
    for each in shares:
        low, high = each.broken.interval
        yield ChartMark(
            each.eps,
            1 - each.broken.fraction,
            share_text(each),
            GroupStyle("currentColor", "o", ""),
            y_interval=(1 - high, 1 - low),
            flagged=bool(each.broken.flags),
            note="; ".join(each.broken.unfinished) if each is shares[0] else "",
        )


def share_text(shares: RadiusShares) -> str:
    """Write the shares at one radius with their intervals."""
    parts = (
        ("certified", shares.certified),
        ("open", shares.open),
        ("broken", shares.broken),
    )
    unfinished = shares.broken.unfinished
    mark = f" ({unfinished_text(unfinished)})" if unfinished else ""
    numbers = ", ".join(f"{name} {interval_text(cell)}" for name, cell in parts)
    return f"at {eps_label(shares.eps)}: {numbers}, n={shares.broken.n}{mark}"


def interval_text(cell: TableCell) -> str:
    """Write a share with its 95% interval, over seeds too."""
    low, high = cell.interval
    return f"{cell.fraction:.1%} [{100 * low:.1f}, {100 * high:.1f}]"
