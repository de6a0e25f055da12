"""A reproduced table or figure as text: the claims, then our numbers and the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from advnorm.records import Measured, Reproduction
from advnorm.report.terminal_table import split_blocks

_MOST_COLUMNS = 8
"""A table with more columns, and more columns than rows, is transposed."""


class NumberText(NamedTuple):
    """A number as text."""

    ours: str
    theirs: str = ""
    """The published one, in brackets."""
    detail: str = ""
    """The 95% interval of one seed, and n if it is not given elsewhere."""


@dataclass(frozen=True)
class ReproductionTable:
    """The numbers of a record as text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[NumberText | None, ...]], ...]


def reproduction_text(record: Reproduction) -> str:
    """Return a reproduction as text; ``*``: a published number outside our interval."""
    seeds = f"{record.seeds} seed{'s' if record.seeds > 1 else ''}"
    lines = [f"{record.artefact}: {record.title} ({record.scale}, {seeds})", ""]
    for claim in record.claims:
        lines += [f"  {claim.mark} {claim.text}: {claim.summary}"]
        lines += [f"      {claim.why}"]
    lines += ["", *_lines(record), ""] if record.rows else [""]
    lines += [f"  failed: {name}: {why}" for name, why in record.failed.items()]
    lines += [f"  {record.seconds / 60:.1f} minutes of runs on {record.machine}"]
    return "\n".join(lines)


def build_table(record: Reproduction) -> ReproductionTable:
    """Return the table of a record.

    The number of samples is given once if it is the same for all accuracies, else beside
    each column, or each row, or in each cell.
    """
    counts = _counts(record)
    rows = tuple(
        (
            f"{row}{_n(counts.rows.get(row))}",
            tuple(_number_text(cells.get(c), counts.cells) for c in record.columns),
        )
        for row, cells in record.rows.items()
    )
    columns = tuple(f"{name}{_n(counts.columns.get(name))}" for name in record.columns)
    return ReproductionTable(_caption(record), columns, rows)


@dataclass(frozen=True)
class _Counts:
    """Where n is given, if not once for all."""

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
    if all(len(counts) <= 1 for counts in columns.values()):
        return _Counts(columns={name: n for name, ns in columns.items() for n in ns})
    rows = {row: {cell.n for cell in cells.values()} for row, cells in record.rows.items()}
    if all(len(counts) <= 1 for counts in rows.values()):
        return _Counts(rows={row: n for row, ns in rows.items() for n in ns})
    return _Counts(cells=True)


def _caption(record: Reproduction) -> str:
    every = [cell for cells in record.rows.values() for cell in cells.values()]
    sentences = []
    if record.n is not None:
        sentences.append(f"Each number is an accuracy on n={record.n} samples.")
    if any(cell.interval for cell in every):
        sentences.append("A range is the 95% interval of one seed, over its samples.")
    return " ".join(sentences)


def _n(count: int | None) -> str:
    return "" if count is None else f" (n={count})"


def _number_text(cell: Measured | None, with_count: bool) -> NumberText | None:
    if cell is None:
        return None
    details = [f"{cell.interval[0]:.1f}–{cell.interval[1]:.1f}"] if cell.interval else []
    if with_count and cell.n is not None:
        details.append(f"n={cell.n}")
    theirs = ""
    if cell.published is not None:
        error = "" if cell.published.error is None else f" ± {cell.published.error:g}"
        theirs = f"[{cell.published.value:g}{error}]"
    return NumberText(f"{cell}{'*' if cell.apart else ''}", theirs, ", ".join(details))


def _lines(record: Reproduction) -> list[str]:
    """Write the table; a wide one is transposed."""
    table = build_table(record)
    head = [record.x or "", *table.columns]
    body = [[row, *map(_joined, cells)] for row, cells in table.rows]
    if len(record.columns) > max(_MOST_COLUMNS, len(record.rows)):
        head, *body = map(list, zip(head, *body, strict=True))
    columns = [_pad(column) for column in zip(head, *body, strict=True)]
    lines = [f"  {table.caption}"] if table.caption else []
    for block in split_blocks(columns[0], columns[1:]):
        lines += [""] if lines else []
        lines += [f"  {'  '.join(cells)}".rstrip() for cells in zip(*block, strict=True)]
    return lines


def _pad(column: Sequence[str]) -> list[str]:
    return [cell.ljust(max(map(len, column))) for cell in column]


def _joined(number: NumberText | None) -> str:
    """Return a number for a terminal.

    >>> _joined(NumberText("90", "[95 ± 1]", "82.6–94.5")), _joined(None)
    ('90 (82.6–94.5) [95 ± 1]', '-')
    """
    if number is None:
        return "-"
    detail = f"({number.detail})" if number.detail else ""
    return " ".join(filter(None, (number.ours, detail, number.theirs)))
