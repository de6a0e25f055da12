"""Records to tables, figures and one HTML page. Reads run folders, imports no torch."""

from collections.abc import Sequence
from pathlib import Path

from advnorm.records import Run
from advnorm.report.corruption import CorruptionError, corruption_errors
from advnorm.report.reproductions import reproduction_text
from advnorm.report.rows import Cell, Row, table
from advnorm.report.text import terminal

__all__ = [
    "Cell",
    "CorruptionError",
    "Row",
    "corruption_errors",
    "reproduction_text",
    "table",
    "terminal",
    "write",
    "write_pages",
]


def write(runs: Sequence[Run], out: Path) -> Path:
    """Compare ``runs`` on one self-contained HTML page at ``out``, whole or not there.

    The same records give the same bytes. Returns ``out``.
    """
    # matplotlib and jinja2 are slow to import, and the terminal's table needs neither.
    from advnorm.files import write_atomically
    from advnorm.report.page import render

    content = render(runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, content.encode())
    return out


def write_pages(folder: Path, out: Path | None = None) -> list[Path]:
    """Write a page for each paper that ``advnorm reproduce`` left records of in ``folder``.

    Pages go into ``out``, or beside the records. Returns their paths.
    """
    from advnorm.files import write_atomically
    from advnorm.records import reproductions
    from advnorm.report.paper import render

    place, written = out or folder, []
    place.mkdir(parents=True, exist_ok=True)
    for paper, records in reproductions(folder).items():
        path = place / f"{paper}.html"
        write_atomically(path, render(paper, records).encode())
        written.append(path)
    return written
