"""Draw a figure as SVG: text stays text, and one file serves light and dark pages."""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from math import ceil
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from PIL import Image

from advnorm.records import Picture
from advnorm.report import figures
from advnorm.report.styles import STYLES
from result_figures.contents import Drawing, Part, Plotted

WIDTH = 4.6
"""In inches: 441 pixels, of which a phone shows four fifths."""
_PALETTES = {
    "light": "--ink:#1f2328;--grid:#d8dee4;--paper:#ffffff",
    "dark": "--ink:#e6edf3;--grid:#3d444d;--paper:#0d1117",
}
_LINES: dict[str, str] = {"-": "solid", "--": "dashed", ":": "dotted", "": "none"}


def svg(drawing: Drawing, variant: str = "") -> str:
    """Return the file of a figure; without a variant it follows the reader's choice."""
    with rc_context({**figures.RC_PARAMS, "svg.image_inline": True}):
        figure = _pictures(drawing) if drawing.parts[0].pictures else _axes(drawing)
        text = str(figures.to_svg(figure.axes[0], "f"))
    return _standing_alone(text, drawing, variant)


def digest_of(text: str) -> str:
    """Return the digest of what a file shows, as it was written into it."""
    match = re.search(r"<metadata>sha256:(\w+)</metadata>", text)
    return match[1] if match else ""


def _standing_alone(text: str, drawing: Drawing, variant: str) -> str:
    """Add title, description, digest and colors to inline SVG."""
    light, dark = (f":root{{{_PALETTES[name]}}}" for name in ("light", "dark"))
    follow = f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    colors = f":root{{{_PALETTES[variant]}}}" if variant else follow
    style = "svg{color:var(--ink);background:var(--paper)}image{image-rendering:pixelated}"
    head = (
        f"<title>{escape(drawing.title)}</title><desc>{escape(drawing.description)}</desc>"
        f"<metadata>sha256:{drawing.digest}</metadata><style>{colors}{style}</style>"
    )
    return re.sub(r"(<svg\b[^>]*>)", lambda m: m[1] + head, _compact(text), count=1)


def _compact(text: str) -> str:
    """Make the file small: rounded numbers, short names, one style a group of points."""
    text = re.sub(r"\d+\.\d{5,}", lambda m: f"{float(m[0]):.2f}", text)
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r"(<g clip-path=[^>]*)>((?:<use [^>]*/>)+)</g>", _shared_style, text)
    text = re.sub(r"data:image/png;base64,([^\"]+)", _small_picture, text)
    used = dict.fromkeys(re.findall(r"#(f-[\w.-]+)", text))
    text = re.sub(r' id="(f-[^"]+)"', lambda m: m[0] if m[1] in used else "", text)
    for number, name in enumerate(sorted(used, key=len, reverse=True)):
        text = text.replace(name, f"f{number}")
    return re.sub(r"\s+", " ", text).replace("xlink:href=", "href=") + "\n"


def _small_picture(match: re.Match[str]) -> str:
    """Reduce an embedded picture to 32 colors."""
    packed = BytesIO()
    with Image.open(BytesIO(b64decode(match[1]))) as picture:
        picture.convert("RGB").quantize(32).save(packed, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(packed.getvalue()).decode()}"


def _shared_style(match: re.Match[str]) -> str:
    """Move the style of the points of a group to the group, if all have the same."""
    styles = set(re.findall(r' style="[^"]*"', match[2]))
    if len(styles) != 1:
        return match[0]
    (style,) = styles
    return f"{match[1]}{style}>{match[2].replace(style, '')}</g>"


def _axes(drawing: Drawing) -> Figure:
    """Draw the parts below one another, with one legend above them."""
    rows = ceil(len(drawing.parts) / drawing.columns)
    names = _names(drawing.parts)
    lines = ceil(len(names) / 2) if len(names) > 1 else 0
    size = (WIDTH, drawing.height * rows + 0.19 * lines)
    figure = Figure(figsize=size, layout="constrained")
    grid: Any = figure.subplots(rows, drawing.columns, squeeze=False)
    for axes, part in zip(grid.flat, drawing.parts, strict=False):
        _part(axes, part)
    if names:
        figure.legend(
            handles=list(names.values()),
            loc="outside upper left",
            ncols=2,
            frameon=False,
            fontsize=8.5,
            columnspacing=1.2,
        )
    return figure


def _part(axes: Axes, part: Part) -> None:
    axes.set_xlabel(part.x)
    axes.set_ylabel("" if part.rows else part.y)
    axes.set_title(part.title, fontsize=9.0, loc="left")
    for number, series in enumerate(part.series):
        shift = (number - (len(part.series) - 1) / 2) * 0.14 if part.rows else 0.0
        _series(axes, series, shift)
    _scales(axes, part)
    if part.x_range:
        axes.set_xlim(*part.x_range)
    if part.y_range:
        axes.set_ylim(*part.y_range)
    if part.rows:
        axes.set_ylim(len(part.ticks) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
    if part.equal:
        axes.set_aspect("equal", adjustable="box")


def _scales(axes: Axes, part: Part) -> None:
    """Set logarithmic axes and ticks; counts get whole numbers."""
    if part.log_x:
        axes.set_xscale("log")
    elif all(x == int(x) for series in part.series for x in series.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if part.log_y:
        axes.set_yscale("log")
    for axis in [axes.xaxis] * part.log_x + [axes.yaxis] * part.log_y:
        axis.set_major_locator(LogLocator(subs=(1.0,) if part.log_x else (1.0, 2.0, 5.0)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    if part.ticks:
        axis = axes.yaxis if part.rows else axes.xaxis
        axis.set_ticks([x for x, _ in part.ticks], [label for _, label in part.ticks])
        axis.set_tick_params(which="minor", size=0)


def _series(axes: Axes, series: Plotted, shift: float) -> None:
    """Draw a series with its bars, and the paper's points hollow and dotted."""
    style, many = STYLES[series.style], len(series.x) > 60
    places = [y + shift for y in series.y]
    axes.plot(
        series.x,
        places,
        color=style.colour,
        marker=style.marker if series.marker else "none",
        markersize=2.5 if many else 5,
        linestyle=_LINES[series.line],
    )
    if series.error or series.x_error:
        axes.errorbar(
            series.x,
            places,
            xerr=series.x_error or None,
            yerr=series.error or None,
            color=style.colour,
            linestyle="none",
            capsize=2,
            elinewidth=1,
        )
    if series.published:
        axes.plot(
            [x for x, _ in series.published],
            [y + shift for _, y in series.published],
            color=style.colour,
            marker=style.marker,
            markersize=7,
            markerfacecolor="none",
            linestyle="dotted" if series.line else "none",
            linewidth=1,
        )


def _names(parts: Sequence[Part]) -> dict[str, Line2D]:
    """Return the legend: a handle for every name of a series, and one for the paper's."""
    every = [series for part in parts for series in part.series]
    handles: dict[str, Line2D] = {}
    for series in every:
        handles.setdefault(series.name, _handle(series))
    if any(series.published for series in every):
        paper = "hollow: the paper's"
        handles[paper] = Line2D(
            [], [], color="#8a8a8a", marker="o", markerfacecolor="none", ls=":", label=paper
        )
    return handles


def _handle(series: Plotted) -> Line2D:
    style = STYLES[series.style]
    return Line2D(
        [],
        [],
        color=style.colour,
        marker=style.marker if series.marker else "none",
        linestyle=_LINES[series.line],
        label=series.name,
    )


def _pictures(drawing: Drawing) -> Figure:
    """Draw each part as a row of pictures below its title."""
    widest = max(len(part.pictures) for part in drawing.parts)
    side, title, gap = WIDTH / widest, 0.24, 0.05
    row = side + title + 0.22
    figure = Figure(figsize=(WIDTH, row * len(drawing.parts) + gap))
    height = figure.get_figheight()
    for number, part in enumerate(drawing.parts):
        top = 1 - number * row / height
        figure.text(gap / WIDTH, top - 0.1 / height, part.title, fontsize=9, va="top")
        bottom = top - (row - gap) / height
        for place, picture in enumerate(part.pictures):
            box = (place * side + gap / 2, side - gap)
            axes = figure.add_axes(
                (box[0] / WIDTH, bottom, box[1] / WIDTH, (side - gap) / height)
            )
            axes.set_axis_off()
            _picture(axes, picture)
    return figure


def _picture(axes: Axes, picture: Picture) -> None:
    """Show a picture: signed ones are blue below zero and red above."""
    values = np.array(picture.channels)[0]
    size = float(np.abs(values).max()) or 1.0
    axes.imshow(
        values,
        cmap="RdBu_r" if picture.signed else "gray",
        vmin=-size if picture.signed else min(0.0, float(values.min())),
        vmax=size,
        interpolation="none",
    )
    axes.set_title(picture.label, fontsize=8, pad=2)
