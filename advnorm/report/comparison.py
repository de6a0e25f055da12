"""The comparison table of the page: marks, notes, and the best of each column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan

from advnorm.records import Result
from advnorm.report.completion_marks import unfinished_text
from advnorm.report.groups import RunGroup
from advnorm.report.rows import (
    ReportRow,
    TableCell,
    branch_label,
    column_inconsistency,
    result_label,
    threat_label,
)
from advnorm.report.styles import GroupStyle
from advnorm.report.worst_case import WorstCase

_WORST = "worst case"


@dataclass
class Notes:
    """Numbered notes: a text has one number, wherever it applies."""

    places: dict[str, list[str]] = field(default_factory=dict)

    def mark(self, text: str, place: str) -> int:
        """Return the number of ``text``, and list ``place`` (if any) under it."""
        places = self.places.setdefault(text, [])
        if place and place not in places:
            places.append(place)
        return list(self.places).index(text) + 1


@dataclass(frozen=True)
class ColumnHeading:
    """The heading of a column."""

    label: str
    condition: str
    threat: str
    branch: str
    data: str
    """If it is another data set than the runs' own."""
    n: str
    marks: tuple[int, ...]


@dataclass(frozen=True)
class PageCell:
    """One cell of the page."""

    text: str
    fraction: float
    """For sorting; -1 if there is no accuracy."""
    best: bool = False
    part: str = ""
    """How many seeds have it, if not all."""
    unfinished: str = ""
    """The progress of training, if it was not finished."""
    marks: tuple[int, ...] = ()
    flagged: bool = False


@dataclass(frozen=True)
class PageRow:
    """One row of the page."""

    row: ReportRow
    style: GroupStyle
    marks: tuple[int, ...]
    cells: tuple[PageCell, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """By what a reader may hide it: ``flagged``, ``unfinished``."""
        flagged = self.marks or any(cell.flagged for cell in self.cells)
        unfinished = any(cell.unfinished for cell in self.cells)
        kinds = {"flagged": flagged, "unfinished": unfinished}
        return tuple(kind for kind, applies in kinds.items() if applies)


@dataclass(frozen=True)
class Comparison:
    """Groups, the single runs of groups with several, and all notes."""

    headings: tuple[ColumnHeading, ...]
    groups: tuple[PageRow, ...]
    runs: tuple[PageRow, ...]
    notes: dict[str, list[str]]


def compare(
    groups: Sequence[RunGroup],
    rows: Sequence[ReportRow],
    styles: Mapping[str, GroupStyle],
    worst: WorstCase | None = None,
) -> Comparison:
    """Lay out the table, the worst case over all attacks first.

    The best of a column is its highest accuracy of finished runs without a flag: a flagged
    one may be wrong.
    """
    notes = Notes()
    results: dict[str, list[Result]] = {key: [] for row in rows for key in row.cells}
    for group in groups:
        _note_repeats(group, notes)
        for run in group.members:
            for key, result in run.results.items():
                results[key].append(result)
    headings = {key: _heading(column, notes) for key, column in results.items()}
    best = {key: _best(rows, key) for key in results} if len(rows) > 1 else {}
    if worst:
        rows = [_with_worst(row, worst) for row in rows]
        headings = {_WORST: _worst_heading(worst), **headings}
        best = {_WORST: _best(rows, _WORST), **best} if len(rows) > 1 else {}
    page_rows = [_page_row(row, styles[row.label], headings, best, notes) for row in rows]
    members = [run for row in rows if len(row.members) > 1 for run in row.members]
    runs = [_page_row(run, styles[run.label], headings, {}, notes) for run in members]
    return Comparison(tuple(headings.values()), tuple(page_rows), tuple(runs), notes.places)


def _with_worst(row: ReportRow, worst: WorstCase) -> ReportRow:
    """Put the worst case before the other cells of a row and of its members."""

    def extended(row: ReportRow, cell: TableCell | None) -> ReportRow:
        return replace(row, cells={_WORST: cell, **row.cells})

    members = tuple(extended(run, worst.runs.get(run.name)) for run in row.members)
    return replace(extended(row, worst.groups.get(row.label)), members=members)


def _worst_heading(worst: WorstCase) -> ColumnHeading:
    cells = list(worst.runs.values())
    counts = sorted({cell.n for cell in cells})
    n = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    return ColumnHeading(_WORST, _WORST, worst.threat, "", "", n, ())


def _note_repeats(group: RunGroup, notes: Notes) -> None:
    for run in group.members:
        if run not in group.one_per_seed:
            text = "same recipe and seed as another run: not counted in the mean over seeds"
            notes.mark(text, run.name)


def _heading(results: Sequence[Result], notes: Notes) -> ColumnHeading:
    first = results[0]
    counts = sorted({result.accuracy.n for result in results})
    text, label = column_inconsistency(results), result_label(first)
    return ColumnHeading(
        label=label,
        condition=first.condition,
        threat=threat_label(first.threat) if first.threat else "",
        branch=branch_label(first.branch),
        data=f"on {first.data}" if first.other else "",
        n=" to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1]))),
        marks=(notes.mark(text, f"column {label}"),) if text else (),
    )


def _best(rows: Sequence[ReportRow], key: str) -> float:
    cells = [row.cells[key] for row in rows]
    fractions = [cell.fraction for cell in cells if cell and _trusted(cell)]
    return max((f for f in fractions if not isnan(f)), default=float("nan"))


def _trusted(cell: TableCell) -> bool:
    """Tell whether a cell may be the best of its column."""
    return not cell.flags and not cell.unfinished


def _page_row(
    row: ReportRow,
    style: GroupStyle,
    headings: Mapping[str, ColumnHeading],
    best: Mapping[str, float],
    notes: Notes,
) -> PageRow:
    several = len(row.members) > 1  # then the rows of the single runs are the places
    cells = tuple(
        _page_cell(
            cell,
            len(row.seeds),
            best.get(key),
            "" if several else f"{row.name}, {headings[key].label}",
            notes,
        )
        for key, cell in row.cells.items()
    )
    marks = tuple(
        notes.mark(f"in training: {alarm}", "" if several else row.name)
        for alarm in row.alarms
    )
    if row.inconsistency:
        marks += (notes.mark(row.inconsistency, f"row {row.name}"),)
    return PageRow(row, style, marks, cells)


def _page_cell(
    cell: TableCell | None, seeds: int, best: float | None, place: str, notes: Notes
) -> PageCell:
    if cell is None:
        return PageCell(text="–", fraction=-1.0)
    measured = len(cell.fractions)
    return PageCell(
        text=str(cell),
        fraction=-1.0 if isnan(cell.fraction) else cell.fraction,
        best=cell.fraction == best and _trusted(cell),
        part=f"{measured} of {seeds} seeds" if measured < seeds else "",
        unfinished=unfinished_text(cell.unfinished),
        marks=tuple(notes.mark(flag, place) for flag in (*cell.flags, *cell.notes)),
        flagged=bool(cell.flags),
    )
