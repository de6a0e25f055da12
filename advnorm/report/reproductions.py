"""A reproduced table or figure in text: claims first, then ours beside theirs."""

from collections.abc import Sequence

from advnorm.records import Measured, Reproduction

_WIDE = 8
"""Columns that a terminal takes."""


def reproduction_text(record: Reproduction) -> str:
    """Return a reproduction for a terminal; ``*`` is over two standard errors apart."""
    seeds = f"{record.seeds} seed{'s' if record.seeds > 1 else ''}"
    lines = [f"{record.artefact}: {record.title} ({record.scale}, {seeds})", ""]
    for claim in record.claims:
        lines += [f"  {claim.mark} {claim.text}: {claim.told}"]
        lines += [f"      {claim.why}"]
    lines += ["", *_table(record), ""] if record.rows else [""]
    lines += [f"  failed: {name}: {why}" for name, why in record.failed.items()]
    lines += [f"  {record.seconds / 60:.1f} minutes of runs on {record.machine}"]
    return "\n".join(lines)


def cell_text(cell: Measured | None) -> str:
    """Return a number over seeds, with the published one in brackets.

    >>> cell_text(Measured(values=(1.0, 3.0)))
    '2 ± 1'
    """
    if cell is None:
        return "-"
    if cell.published is None:
        return str(cell)
    theirs = cell.published
    error = "" if theirs.error is None else f" ± {theirs.error:g}"
    return f"{cell}{'*' if cell.apart else ''} [{theirs.value:g}{error}]"


def _table(record: Reproduction) -> list[str]:
    """Write rows and columns; the other way round where there are far more columns."""
    head = [record.x or "", *record.columns]
    body = [
        [row, *(cell_text(cells.get(column)) for column in record.columns)]
        for row, cells in record.rows.items()
    ]
    if len(record.columns) > max(_WIDE, len(record.rows)):
        head, *body = map(list, zip(head, *body, strict=True))
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    return [_line(cells, widths) for cells in (head, *body)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  " + "  ".join([first, *rest]).rstrip()
