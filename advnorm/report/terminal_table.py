"""The comparison as text for a terminal: a line a result, a column a group."""

from collections.abc import Sequence

from advnorm.records import Run
from advnorm.report.completion_marks import unfinished_text
from advnorm.report.groups import ReportRun, load_groups
from advnorm.report.rows import (
    ReportRow,
    TableCell,
    column_inconsistency,
    group_rows,
    result_label,
)

WIDTH = 100
"""Characters of a line; groups that do not fit go into another block below."""
Column = Sequence[str]
"""The cells of a column, from top to bottom."""


def comparison_text(runs: Sequence[Run]) -> str:
    """Return the comparison as plain text; warnings are numbered below it.

    Over seeds a cell is the mean ± its standard error, else the accuracy [95% interval].
    """
    groups = load_groups(runs)
    rows = group_rows(groups)
    notes: list[str] = []
    keys = list(rows[0].cells)
    loaded = [run for group in groups for run in group.members]
    names = ["", "", "", *(_name(key, loaded, notes) for key in keys), "in training"]
    first = [name.ljust(max(map(len, names))) for name in names]
    columns = [_column(row, keys, notes) for row in rows]
    shown = ["\n".join(_joined(block)) for block in split_blocks(first, columns)]
    numbered = [f"*{number} {note}" for number, note in enumerate(notes, start=1)]
    return "\n\n".join([*shown, "\n".join(numbered)]).rstrip()


def split_blocks(first: Column, columns: Sequence[Column]) -> list[list[Column]]:
    """Split columns into blocks that fit a terminal; each begins with the first column."""
    blocks: list[list[Column]] = []
    for column in columns:
        if not blocks or _width([*blocks[-1], column]) > WIDTH:
            blocks.append([first])
        blocks[-1].append(column)
    return blocks


def _name(key: str, runs: Sequence[ReportRun], notes: list[str]) -> str:
    results = [run.results[key] for run in runs if key in run.results]
    counts = sorted({result.accuracy.n for result in results})
    n = "..".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    marks = _marks([column_inconsistency(results)], notes)
    return f"{result_label(results[0])} (n={n}){marks}"


def _column(row: ReportRow, keys: Sequence[str], notes: list[str]) -> list[str]:
    norm, objective, *others = row.label.split(" · ")
    cells = [row.cells[key] for key in keys]
    shown = [_cell_text(cell, notes) for cell in cells]
    alarms = _marks(row.alarms, notes).strip() or "-"
    norm += _marks([row.inconsistency], notes)
    column = [norm, objective, " ".join(others), *shown, alarms]
    return [text.rjust(max(map(len, column))) for text in column]


def _cell_text(cell: TableCell | None, notes: list[str]) -> str:
    if cell is None:
        return "-"
    texts = (*cell.flags, *cell.notes, unfinished_text(cell.unfinished))
    return f"{cell}{_marks(texts, notes)}"


def _marks(texts: Sequence[str], notes: list[str]) -> str:
    marked = [text for text in texts if text]
    notes.extend(text for text in marked if text not in notes)
    return "".join(f" *{notes.index(text) + 1}" for text in marked)


def _joined(columns: Sequence[Column]) -> list[str]:
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    quiet = all(column[-1].strip() == "-" for column in columns[1:])
    return lines[:-1] if quiet else lines


def _width(columns: Sequence[Column]) -> int:
    return sum(len(column[0]) + 2 for column in columns) - 2
