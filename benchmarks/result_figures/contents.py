"""What a figure of docs/results shows: values from the kept records, and nothing else.

A figure is drawn from these values alone, so that their digest tells whether it is current.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from advnorm.records import Measured, Panel, Picture, Reproduction, Run, read_reproduction

ATTACKED = "accuracy under attack, %"
ACCURACY = "accuracy, %"
PERCENT = (0.0, 100.0)


@dataclass(frozen=True)
class Plotted:
    """One series; ``style`` is the place of its color and marker."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] = ()
    """Half the length of the bar through each point; nothing for no bars."""
    x_error: tuple[float, ...] = ()
    published: tuple[tuple[float, float], ...] = ()
    """The paper's points, in the order of x."""
    style: int = 0
    line: Literal["-", "--", ":", ""] = "-"
    marker: bool = True


@dataclass(frozen=True)
class Part:
    """One pair of axes of a figure; the parts stand below one another."""

    title: str
    x: str
    y: str
    series: tuple[Plotted, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    """Places and labels on the axis of x; of ``rows``, on that of y."""
    rows: bool = False
    """Whether y is a list of names, the first on top."""
    log_x: bool = False
    log_y: bool = False
    equal: bool = False
    """Whether both axes have the same unit."""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A figure: its file name, the page that shows it, its parts, and how wide they are."""

    name: str
    page: str
    title: str
    parts: tuple[Part, ...]
    height: float = 2.5
    """Of each part, in inches."""
    columns: int = 1
    variants: tuple[str, ...] = ("",)
    """``light`` and ``dark`` for a file each; else one that follows the reader's choice."""
    note: str = ""

    @property
    def digest(self) -> str:
        """A hash of all that is drawn, to six digits."""
        text = json.dumps(_rounded(asdict(self)), sort_keys=True)
        return sha256(text.encode()).hexdigest()

    @property
    def description(self) -> str:
        """Return the drawn values in words."""
        texts = [_described(part) for part in self.parts]
        return " ".join(text for text in [self.note, *texts] if text)


class Place(NamedTuple):
    """Where a number of a record is drawn."""

    x: float
    row: str
    column: str


class Results:
    """The kept records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self, name: str) -> Reproduction:
        """Return the record ``PAPER/ARTEFACT-SCALE``."""
        path = self.folder / f"{name}.json"
        if not path.is_file():
            raise FileNotFoundError(path)
        return read_reproduction(path)

    def run(self, name: str) -> Run:
        """Return a kept run folder."""
        return Run(self.folder / name)


def over(
    record: Reproduction, name: str, places: Iterable[Place], style: int, line: str = "-"
) -> Plotted:
    """Draw numbers of a record over x, with bars of two standard errors."""
    cells = [(x, record.rows[row][column]) for x, row, column in places]
    return Plotted(
        name=name,
        x=tuple(x for x, _ in cells),
        y=tuple(cell.mean for _, cell in cells),
        error=tuple(bar(cell) for _, cell in cells),
        published=tuple((x, c.published.value) for x, c in cells if c.published),
        style=style,
        line=line,  # type: ignore[arg-type]
    )


def row_over_columns(
    record: Reproduction, row: str, style: int, name: str = "", line: str = "-"
) -> Plotted:
    """Draw a row of a record over its columns, which are numbers."""
    columns = [column for column in record.columns if column in record.rows[row]]
    places = [Place(float(column), row, column) for column in columns]
    return over(record, name or row, places, style, line)


def in_rows(
    record: Reproduction, name: str, places: Sequence[tuple[str, str]], style: int
) -> Plotted:
    """Draw numbers (row, column) of a record as dots in a list, one below another."""
    upright = over(
        record, name, (Place(n, *place) for n, place in enumerate(places)), style, ""
    )
    return Plotted(
        name=name,
        x=upright.y,
        y=upright.x,
        x_error=upright.error,
        published=tuple((value, place) for place, value in upright.published),
        style=style,
        line="",
    )


def plane(
    record: Reproduction,
    name: str,
    rows: Sequence[str],
    columns: tuple[str, str],
    style: int,
) -> Plotted:
    """Draw one column of some rows against another."""
    first, second = (over(record, name, _numbered(rows, c), style) for c in columns)
    pairs = zip(first.published, second.published, strict=True)
    return Plotted(
        name=name,
        x=first.y,
        y=second.y,
        x_error=first.error,
        error=second.error,
        published=tuple((x, y) for (_, x), (_, y) in pairs),
        style=style,
        line="-" if len(rows) > 1 else "",
    )


def ours_alone(series: Plotted) -> Plotted:
    """Leave out the paper's numbers, where they would stretch the axes too far."""
    return replace(series, published=())


def curves(panel: Panel, styles: Mapping[str, int], line: str = "-") -> list[Plotted]:
    """Draw the series of a panel by the names they have in ``styles``."""
    return [
        Plotted(s.name, s.x, s.y, style=styles[s.name], line=line, marker=False)  # type: ignore[arg-type]
        for s in panel.series
        if s.name in styles
    ]


def bar(cell: Measured) -> float:
    """Return two standard errors; nothing for one seed."""
    return 2 * (cell.error or 0.0)


def named(names: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Return the ticks of a list of names."""
    return tuple((float(place), name) for place, name in enumerate(names))


def panels(record: Reproduction, *titles: str) -> list[Panel]:
    """Return the panels of a record by their titles."""
    by_title = {panel.title: panel for panel in reversed(record.drawn)}
    return [by_title[title] for title in titles]


def _numbered(rows: Sequence[str], column: str) -> list[Place]:
    return [Place(place, row, column) for place, row in enumerate(rows)]


def _described(part: Part) -> str:
    """Return the values of a part; of many points, where they begin and end."""
    labels = dict(part.ticks)
    texts = []
    for each in part.series:
        few = each if len(each.x) <= 12 else _ends(each)
        points = zip(few.x, few.y, strict=True)
        if part.rows:
            values = ", ".join(f"{labels.get(y, '')} {x:.3g}" for x, y in points)
        else:
            values = ", ".join(f"{y:.3g} at {labels.get(x, f'{x:.3g}')}" for x, y in points)
        texts.append(f"{each.name}: {values}." if part.y else "")
    texts += [f"{picture.label};" for picture in part.pictures]
    return " ".join([f"{part.title}.", *filter(None, texts)]) if texts else ""


def _ends(series: Plotted) -> Plotted:
    x, y = series.x, series.y
    return Plotted(series.name, (x[0], x[-1]), (y[0], y[-1]))


def _rounded(value: object) -> object:
    """Round every number below a value to six digits, so that machines agree."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value.model_dump(mode="json") if isinstance(value, Picture) else value
