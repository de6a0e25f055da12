"""Charts as small inline SVG whose points can be pointed at, focused and zoomed into.

Everything is drawn here, so that a page without scripts shows it. ``chart.js`` lets a
reader step through the marks, and ``zoom.js`` stretches the horizontal axis: both read the
``data-`` attributes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite, log10

from markupsafe import Markup, escape

from advnorm.report.figures import SvgPanel, finite_or_nan
from advnorm.report.styles import GroupStyle
from advnorm.text import cut, printable

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 22, 14, 46
CHARACTER = 7.5
"""The width of a character of a label on a narrow screen, where labels are larger."""
MOST_POINTS = 240
"""The most points of a line; longer ones are subsampled."""
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_SHAPES = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "s": "M-3.6-3.6H3.6V3.6H-3.6Z",
    "^": "M0-4.6L4.4 3.4H-4.4Z",
    "D": "M0-4.8L4.8 0L0 4.8L-4.8 0Z",
    "v": "M0 4.6L4.4-3.4H-4.4Z",
    "P": "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
    "X": "M-2.2-4.4L0-2.2L2.2-4.4L4.4-2.2L2.2 0L4.4 2.2L2.2 4.4L0 2.2L-2.2 4.4L-4.4 2.2"
    "L-2.2 0L-4.4-2.2Z",
    "*": "M0-5.2L1.4-1.6H5.2L2.2.8L3.2 4.6L0 2.4L-3.2 4.6L-2.2.8L-5.2-1.6H-1.4Z",
    ".": "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z",
    "x": "M-4-4L4 4M4-4L-4 4",
}
_DASHES = {"-": "", "--": "6 3", ":": "1.5 3", "-.": "6 3 1.5 3"}


@dataclass(frozen=True)
class Axis:
    """One axis: its ends, and the values at which it has a tick."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Return how far along the axis a value is, from 0 to 1; NaN if it is nowhere."""
        value = finite_or_nan(value)
        low, high = self.low, self.high
        if self.log:
            value = log10(value) if value > 0 else float("nan")
            low, high = log10(low), log10(high)
        return (value - low) / (high - low) if high > low else 0.5


@dataclass(frozen=True)
class ChartMark:
    """One point that can be focused, with what is said of it."""

    x: float
    y: float
    text: str
    style: GroupStyle
    fill: str = "full"
    """``full``, ``none``, or ``pale``."""
    key: str = ""
    """Whatever has the same key lights up with it, such as a row of a table."""
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    flagged: bool = False
    note: str = ""
    """Written beside it."""
    shape: str = ""
    """Instead of the style's marker; ``none`` draws nothing but can be focused."""


@dataclass(frozen=True)
class ChartLine:
    """A line, or an area down to ``floor``."""

    points: tuple[tuple[float, float], ...]
    colour: str
    dash: str = "-"
    floor: tuple[tuple[float, float], ...] = ()
    opacity: float = 1.0
    key: str = ""


@dataclass(frozen=True)
class Chart:
    """What is drawn between two axes: areas first, then lines, then marks."""

    title: str
    alt: str
    x: Axis
    y: Axis
    lines: tuple[ChartLine, ...] = ()
    marks: tuple[ChartMark, ...] = ()
    zoomable: bool = False


def percent_axis(label: str) -> Axis:
    """Return an axis from 0 to 100%."""
    return Axis(label, 0.0, 1.0, tuple((t / 100, str(t)) for t in range(0, 101, 20)))


def fitted_percent_axis(label: str, shares: Sequence[float]) -> Axis:
    """Return an axis of percentages that holds all shares, with a little room."""
    low, high = min(shares, default=0.0), max(shares, default=1.0)
    room = 0.06 * max(high - low, 0.05)
    low, high = max(0.0, low - room), min(1.0, high + room)
    ticks = round_ticks(100 * low, 100 * high, 5)
    return Axis(label, low, high, tuple((tick / 100, f"{tick:g}") for tick in ticks))


def count_axis(label: str, values: Sequence[float]) -> Axis:
    """Return an axis of whole numbers, such as epochs."""
    axis = linear_axis(label, values)
    whole = tuple((tick, text) for tick, text in axis.ticks if tick == round(tick))
    return replace(axis, ticks=whole)


def linear_axis(label: str, values: Sequence[float], *, count: int = 6) -> Axis:
    """Return an axis that holds all values, with ticks at round numbers."""
    finite = [v for v in map(finite_or_nan, values) if isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    ticks = round_ticks(low, high, count)
    return Axis(label, low, high, tuple((tick, f"{tick:.6g}") for tick in ticks))


def value_axis(label: str, values: Sequence[float]) -> Axis:
    """Return a linear axis with a little room around the values, and zero if it is near."""
    base = linear_axis(label, values)
    room = 0.04 * (base.high - base.low)
    low = 0.0 if 0 <= base.low < 0.5 * base.high else base.low - room
    ticks = round_ticks(low, base.high + room, 6)
    return Axis(label, low, base.high + room, tuple((t, f"{t:.6g}") for t in ticks))


def log_axis(label: str, ticks: Sequence[tuple[float, str]]) -> Axis:
    """Return a logarithmic axis between the first and the last of its ticks."""
    values = [value for value, _ in ticks]
    low, high = min(values, default=1.0), max(values, default=10.0)
    room = (high / low) ** 0.04 if high > low else 2.0
    return Axis(label, low / room, high * room, tuple(ticks), log=True)


def decade_axis(label: str, values: Sequence[float]) -> Axis:
    """Return a logarithmic axis that holds positive values, with round ticks."""
    positive = [v for v in map(finite_or_nan, values) if v > 0]
    low, high = min(positive, default=1.0), max(positive, default=10.0)
    few, many = (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    steps = (1.0,) if high / low > 1e3 else few if high / low > 2 else many
    exponents = range(floor(log10(low)) - 1, ceil(log10(high)) + 2)
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    inside = [t for t in ticks if low / 1.6 <= t <= high * 1.6][:12]
    return Axis(
        label, low / 1.6, high * 1.6, tuple((t, f"{t:g}") for t in inside), log=True
    )


def round_ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers between two values, about ``count`` of them.

    >>> round_ticks(0, 12, 6), round_ticks(0.1, 0.5, 4)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0], [0.1, 0.2, 0.3, 0.4, 0.5])
    """
    rough = (high - low) / max(1, count)
    if not (isfinite(rough) and rough > 0):
        return [low]
    size = 10.0 ** floor(log10(rough))
    step = next((s * size for s in (1, 2, 5) if s * size >= 0.999 * rough), 10 * size)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def draw(chart: Chart, prefix: str) -> SvgPanel:
    """Return a chart as SVG; its ids begin with ``prefix``."""
    x, y = chart.x, chart.y
    ends = f' data-low="{x.low:.6g}" data-high="{x.high:.6g}"'
    zoom = ends if chart.zoomable and not x.log else ""
    body = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" class="chart"{zoom}>',
        f'<clipPath id="{prefix}-clip"><rect x="{LEFT - 6}" y="{TOP - 8}" '
        f'width="{_PLOT_WIDTH + 12}" height="{_PLOT_HEIGHT + 16}"/></clipPath>',
        *_grid(x, y),
        f'<g clip-path="url(#{prefix}-clip)"><g class="lines">',
        *(_line(line, x, y) for line in chart.lines),
        "</g>",
        *(_mark(mark, x, y) for mark in chart.marks),
        "</g></svg>",
    ]
    return SvgPanel(chart.title, chart.alt, Markup("".join(body)))


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/><g class="x-ticks">']
    free = 0.0
    for value, text in x.ticks:
        place, half = _x(x, value), CHARACTER * (len(text) + 1) / 2
        parts.append(f'<path class="grid" d="M{place} {TOP}V{bottom}"/>')
        if float(place) - half < free:
            continue  # it would overlap the label before
        free = float(place) + half
        parts.append(
            f'<text x="{place}" y="{bottom + 16}" text-anchor="middle">{_text(text)}</text>'
        )
    parts.append("</g>")
    for value, text in y.ticks:
        place = _y(y, value)
        parts.append(
            f'<path class="grid" d="M{LEFT} {place}H{right}"/><text x="{LEFT - 6}" '
            f'y="{place}" dy=".35em" text-anchor="end">{_text(text)}</text>'
        )
    middle = LEFT + _PLOT_WIDTH / 2
    parts.append(
        f'<text x="{middle:g}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{_text(x.label)}</text>"
        f'<text transform="translate(12 {TOP + _PLOT_HEIGHT / 2:g})rotate(-90)" '
        f'text-anchor="middle">{_text(y.label)}</text>'
    )
    return parts


def _line(line: ChartLine, x: Axis, y: Axis) -> str:
    key = f' data-key="{_attribute(line.key)}"' if line.key else ""
    if line.floor:
        path = _path([*line.points, *reversed(line.floor)], x, y)
        fill = f'fill="{line.colour}" fill-opacity="{line.opacity:g}"'
        return f'<path class="area"{key} d="{path}Z" {fill}/>'
    stride = max(1, -(-len(line.points) // MOST_POINTS))
    points = line.points[::stride]
    if stride > 1 and points[-1] != line.points[-1]:
        points = (*points, line.points[-1])
    dash = f' stroke-dasharray="{_DASHES[line.dash]}"' if _DASHES[line.dash] else ""
    return (
        f'<path class="line"{key} d="{_path(points, x, y)}" stroke="{line.colour}"{dash}/>'
    )


def _path(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    """Return path data; a point that is no number is a gap."""
    parts, command = [], "M"
    for x_value, y_value in points:
        if not (isfinite(x.share(x_value)) and isfinite(y.share(y_value))):
            command = "M"
            continue
        parts.append(f"{command}{_x(x, x_value)} {_y(y, y_value)}")
        command = "L"
    return "".join(parts) or "M0 0"


def _mark(mark: ChartMark, x: Axis, y: Axis) -> str:
    if not (isfinite(x.share(mark.x)) and isfinite(y.share(mark.y))):
        return ""
    place, height = _x(x, mark.x), _y(y, mark.y)
    colour, shape = mark.style.colour, mark.shape or mark.style.marker
    parts = [
        f'<g class="datum" transform="translate({place} {height})" data-x="{place}" '
        f'data-key="{_attribute(mark.key)}" data-text="{_attribute(mark.text)}" '
        f'color="{colour}">'
    ]
    bars = ""
    if mark.x_interval:
        low, high = (float(_x(x, end)) - float(place) for end in mark.x_interval)
        bars += f"M{low:.1f} 0H{high:.1f}"
    if mark.y_interval:
        low, high = (float(_y(y, end)) - float(height) for end in mark.y_interval)
        bars += f"M0 {low:.1f}V{high:.1f}"
    parts += [f'<path class="bar" d="{bars}"/>'] if bars else []
    if shape != "none":
        fill = {"full": "", "none": ' fill="none"', "pale": ' fill-opacity=".35"'}[
            mark.fill
        ]
        parts.append(f'<path class="shape" d="{_SHAPES[shape]}"{fill}/>')
    if mark.flagged:
        parts.append('<text class="flag" x="6" y="-4">!</text>')
    if mark.note:
        anchor = ' text-anchor="end" x="-6"' if float(place) > 0.6 * WIDTH else ' x="6"'
        parts.append(f'<text class="note"{anchor} y="14">{_text(mark.note)}</text>')
    return "".join([*parts, "</g>"])


def _x(axis: Axis, value: float) -> str:
    return f"{LEFT + _PLOT_WIDTH * _inside(axis.share(value)):.1f}"


def _y(axis: Axis, value: float) -> str:
    return f"{TOP + _PLOT_HEIGHT * (1 - _inside(axis.share(value))):.1f}"


def _inside(share: float) -> float:
    """Return a share that stays on the drawing; axes hold all values but ends of bars."""
    return min(1.02, max(-0.02, share))


def _text(text: str) -> str:
    """Return a short text that is safe in a drawing."""
    return _attribute(cut(text, 60))


def _attribute(text: str) -> str:
    return str(escape(printable(text)))
