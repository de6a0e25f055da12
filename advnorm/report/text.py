"""The comparison for a terminal: a line a result, a column a group."""

from collections.abc import Sequence

from advnorm.records import Run
from advnorm.report.groups import gather
from advnorm.report.rows import Row, rows

WIDTH = 100
"""Groups that do not fit go into a further block below."""


def terminal(runs: Sequence[Run]) -> str:
    """Return the comparison as plain text; flags and alarms are numbered below it.

    Over seeds a cell is the mean ± its standard error, else the accuracy [95% interval].
    """
    lines = rows(gather(runs))
    notes: list[str] = []
    keys = list(lines[0].cells)
    names = ["", "", "", *(_name(key, lines) for key in keys), "in training"]
    first = [name.ljust(max(map(len, names))) for name in names]
    blocks: list[list[list[str]]] = []
    for row in lines:
        column = _column(row, keys, notes)
        if not blocks or _width([first, *blocks[-1], column]) > WIDTH:
            blocks.append([])
        blocks[-1].append(column)
    shown = ["\n".join(_joined([first, *block])) for block in blocks]
    numbered = [f"*{number} {note}" for number, note in enumerate(notes, start=1)]
    return "\n\n".join([*shown, "\n".join(numbered)]).rstrip()


def _name(key: str, lines: Sequence[Row]) -> str:
    counts = sorted({cell.n for row in lines if (cell := row.cells[key])})
    return f"{key} (n={'..'.join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))})"


def _column(row: Row, keys: Sequence[str], notes: list[str]) -> list[str]:
    norm, objective, *rest = row.label.split(" · ")
    cells = [row.cells[key] for key in keys]
    shown = [f"{cell}{_marks(cell.flags, notes)}" if cell else "-" for cell in cells]
    alarms = _marks(row.alarms, notes).strip() or "-"
    column = [norm, objective, " ".join(rest), *shown, alarms]
    return [text.rjust(max(map(len, column))) for text in column]


def _marks(texts: Sequence[str], notes: list[str]) -> str:
    notes.extend(text for text in texts if text not in notes)
    return "".join(f" *{notes.index(text) + 1}" for text in texts)


def _joined(columns: Sequence[Sequence[str]]) -> list[str]:
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    quiet = all(column[-1].strip() == "-" for column in columns[1:])
    return lines[:-1] if quiet else lines


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(len(column[0]) + 2 for column in columns) - 2
