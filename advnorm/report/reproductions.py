"""A reproduced table or figure in text: claims first, then ours beside theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from advnorm.records import Measured, Reproduction
from advnorm.report.terminal_table import blocks

_WIDE = 8
"""Columns that a terminal takes."""


class NumberText(NamedTuple):
    """A number in text."""

    ours: str
    theirs: str = ""
    """The published one, in brackets."""
    beside: str = ""
    """The 95% interval of one seed, and n where nothing else says it."""


@dataclass(frozen=True)
class ReproductionTable:
    """The numbers of a record in text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[NumberText | None, ...]], ...]


def reproduction_text(record: Reproduction) -> str:
    """Return a reproduction for a terminal; ``*`` is over two standard errors apart."""
    seeds = f"{record.seeds} seed{'s' if record.seeds > 1 else ''}"
    lines = [f"{record.artefact}: {record.title} ({record.scale}, {seeds})", ""]
    for claim in record.claims:
        lines += [f"  {claim.mark} {claim.text}: {claim.told}"]
        lines += [f"      {claim.why}"]
    lines += ["", *_lines(record), ""] if record.rows else [""]
    lines += [f"  failed: {name}: {why}" for name, why in record.failed.items()]
    lines += [f"  {record.seconds / 60:.1f} minutes of runs on {record.machine}"]
    return "\n".join(lines)


def build_table(record: Reproduction) -> ReproductionTable:
    """Return the table of a record.

    How many samples are behind its accuracies is said once if it is one number for all,
    else beside each column, or each row, or in each cell.
    """
    counts = _counts(record)
    return ReproductionTable(
        _caption(record),
        tuple(f"{name}{_n(counts.columns.get(name))}" for name in record.columns),
        tuple(
            (
                f"{row}{_n(counts.rows.get(row))}",
                tuple(_shown(cells.get(c), counted=counts.cells) for c in record.columns),
            )
            for row, cells in record.rows.items()
        ),
    )


@dataclass(frozen=True)
class _Counts:
    """Where n is said, if it is not said once."""

    columns: Mapping[str, int | None] = field(default_factory=dict)
    rows: Mapping[str, int | None] = field(default_factory=dict)
    cells: bool = False


def _counts(record: Reproduction) -> _Counts:
    if record.n is not None:
        return _Counts()
    columns = {
        name: {cells[name].n for cells in record.rows.values() if name in cells}
        for name in record.columns
    }
    if all(len(found) <= 1 for found in columns.values()):
        return _Counts(columns={name: n for name, found in columns.items() for n in found})
    rows = {row: {cell.n for cell in cells.values()} for row, cells in record.rows.items()}
    if all(len(found) <= 1 for found in rows.values()):
        return _Counts(rows={row: n for row, found in rows.items() for n in found})
    return _Counts(cells=True)


def _caption(record: Reproduction) -> str:
    every = [cell for cells in record.rows.values() for cell in cells.values()]
    said = []
    if record.n is not None:
        said.append(f"Each number is an accuracy of n={record.n} samples.")
    if any(cell.interval for cell in every):
        said.append("A range is the 95% interval of one seed, for its samples.")
    return " ".join(said)


def _n(count: int | None) -> str:
    return "" if count is None else f" (n={count})"


def _shown(cell: Measured | None, *, counted: bool) -> NumberText | None:
    if cell is None:
        return None
    said = [f"{cell.interval[0]:.1f}–{cell.interval[1]:.1f}"] if cell.interval else []
    if counted and cell.n is not None:
        said.append(f"n={cell.n}")
    theirs = ""
    if cell.published is not None:
        error = "" if cell.published.error is None else f" ± {cell.published.error:g}"
        theirs = f"[{cell.published.value:g}{error}]"
    return NumberText(f"{cell}{'*' if cell.apart else ''}", theirs, ", ".join(said))


def _lines(record: Reproduction) -> list[str]:
    """Write rows and columns; the other way round where there are far more columns."""
    table = build_table(record)
    head = [record.x or "", *table.columns]
    body = [[row, *map(_joined, cells)] for row, cells in table.rows]
    if len(record.columns) > max(_WIDE, len(record.rows)):
        head, *body = map(list, zip(head, *body, strict=True))
    columns = [_even(column) for column in zip(head, *body, strict=True)]
    said = [f"  {table.caption}"] if table.caption else []
    for block in blocks(columns[0], columns[1:]):
        said += [""] if said else []
        said += [f"  {'  '.join(cells)}".rstrip() for cells in zip(*block, strict=True)]
    return said


def _even(column: Sequence[str]) -> list[str]:
    return [cell.ljust(max(map(len, column))) for cell in column]


def _joined(shown: NumberText | None) -> str:
    """Return a number for a terminal.

    >>> _joined(NumberText("90", "[95 ± 1]", "82.6–94.5")), _joined(None)
    ('90 (82.6–94.5) [95 ± 1]', '-')
    """
    if shown is None:
        return "-"
    beside = f"({shown.beside})" if shown.beside else ""
    return " ".join(filter(None, (shown.ours, beside, shown.theirs)))
