"""The comparison table as the page shows it: marks, notes, and the best of each column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from advnorm.records import Result
from advnorm.report.completion_marks import unfinished_text
from advnorm.report.groups import RunGroup
from advnorm.report.rows import (
    ReportRow,
    TableCell,
    branch_label,
    key_label,
    threat_label,
    unlike,
)
from advnorm.report.styles import GroupStyle


@dataclass
class Notes:
    """Numbered notes: one text has one number, wherever it is needed."""

    places: dict[str, list[str]] = field(default_factory=dict)

    def mark(self, text: str, place: str) -> int:
        """Return the number of ``text`` and remember ``place``, if any, as one with it."""
        places = self.places.setdefault(text, [])
        if place and place not in places:
            places.append(place)
        return list(self.places).index(text) + 1


@dataclass(frozen=True)
class ColumnHeading:
    """The head of a column."""

    key: str
    attack: str
    threat: str
    branch: str
    data: str
    """Where it is another set than the runs' own."""
    n: str
    marks: tuple[int, ...]


@dataclass(frozen=True)
class PageCell:
    """One cell of the page."""

    text: str
    fraction: float
    """For sorting; -1 where there is nothing."""
    best: bool = False
    part: str = ""
    """Which seeds have it, where not all do."""
    unfinished: str = ""
    """How far training was, where it was not finished."""
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class PageRow:
    """One row of the page."""

    row: ReportRow
    style: GroupStyle
    marks: tuple[int, ...]
    cells: tuple[PageCell, ...]


@dataclass(frozen=True)
class Comparison:
    """Groups, the single runs of those that have several, and all notes."""

    headings: tuple[ColumnHeading, ...]
    groups: tuple[PageRow, ...]
    runs: tuple[PageRow, ...]
    notes: dict[str, list[str]]


def compare(
    groups: Sequence[RunGroup], rows: Sequence[ReportRow], styles: Mapping[str, GroupStyle]
) -> Comparison:
    """Lay out the table.

    The best of a column is its highest accuracy without a flag, of finished runs: a flagged
    one may be false.
    """
    notes = Notes()
    results: dict[str, list[Result]] = {key: [] for row in rows for key in row.cells}
    for group in groups:
        _note_repeats(group, notes)
        for run in group.members:
            for key, result in run.results.items():
                results[key].append(result)
    headings = tuple(_heading(key, found, notes) for key, found in results.items())
    best = {key: _best(rows, key) for key in results} if len(rows) > 1 else {}
    lines = tuple(_line(row, styles[row.label], best, notes) for row in rows)
    members = [run for row in rows if len(row.members) > 1 for run in row.members]
    runs = tuple(_line(run, styles[run.label], {}, notes) for run in members)
    return Comparison(headings, lines, runs, notes.places)


def _note_repeats(group: RunGroup, notes: Notes) -> None:
    for run in group.members:
        if run not in group.one_per_seed:
            text = "same recipe and seed as another run: not counted in the mean over seeds"
            notes.mark(text, run.name)


def _heading(key: str, results: Sequence[Result], notes: Notes) -> ColumnHeading:
    counts = sorted({result.accuracy.n for result in results})
    text = unlike(results)
    return ColumnHeading(
        key=key,
        attack=results[0].condition,
        threat=threat_label(results[0].threat) if results[0].threat else "",
        branch=branch_label(results[0].branch),
        data=f"on {results[0].data}" if results[0].other else "",
        n=" to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1]))),
        marks=(notes.mark(text, f"column {key_label(key)}"),) if text else (),
    )


def _best(rows: Sequence[ReportRow], key: str) -> float:
    cells = [row.cells[key] for row in rows]
    fractions = [cell.fraction for cell in cells if cell and _trusted(cell)]
    return max(
        (fraction for fraction in fractions if not isnan(fraction)), default=float("nan")
    )


def _trusted(cell: TableCell) -> bool:
    """Tell whether a cell may be the best of its column."""
    return not cell.flags and not cell.unfinished


def _line(
    row: ReportRow, style: GroupStyle, best: Mapping[str, float], notes: Notes
) -> PageRow:
    several = len(row.members) > 1  # then the rows of the single runs tell the places
    cells = tuple(
        _shown(
            cell,
            len(row.seeds),
            best.get(key),
            "" if several else f"{row.name}, {key_label(key)}",
            notes,
        )
        for key, cell in row.cells.items()
    )
    marks = tuple(
        notes.mark(f"in training: {alarm}", "" if several else row.name)
        for alarm in row.alarms
    )
    mixed = (notes.mark(row.unlike, f"row {row.name}"),) if row.unlike else ()
    return PageRow(row, style, marks + mixed, cells)


def _shown(
    cell: TableCell | None, seeds: int, best: float | None, place: str, notes: Notes
) -> PageCell:
    if cell is None:
        return PageCell(text="–", fraction=-1.0)
    known = len(cell.fractions)
    return PageCell(
        text=str(cell),
        fraction=-1.0 if isnan(cell.fraction) else cell.fraction,
        best=cell.fraction == best and _trusted(cell),
        part=f"{known} of {seeds} seeds" if known < seeds else "",
        unfinished=unfinished_text(cell.unfinished),
        marks=tuple(notes.mark(flag, place) for flag in (*cell.flags, *cell.notes)),
    )
