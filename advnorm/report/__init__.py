"""Records to tables, figures and one HTML page. Reads run folders, imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from advnorm.records import Run, Study
from advnorm.report.corruption import CorruptionSummary, corruption_errors
from advnorm.report.reproductions import reproduction_text
from advnorm.report.rows import ReportRow, TableCell, comparison_rows
from advnorm.report.run_diff import diff_text
from advnorm.report.study_table import study_text
from advnorm.report.terminal_table import comparison_text

__all__ = [
    "CorruptionSummary",
    "ReportRow",
    "TableCell",
    "WrittenPages",
    "comparison_rows",
    "comparison_text",
    "corruption_errors",
    "diff_text",
    "reproduction_text",
    "study_text",
    "write",
    "write_paper_pages",
    "write_study",
]


def write(runs: Sequence[Run], out: Path) -> Path:
    """Compare ``runs`` on one self-contained HTML page, written atomically to ``out``.

    The same records give the same bytes. Returns ``out``.
    """
    # matplotlib and jinja2 are slow to import, and the terminal's table needs neither.
    from advnorm.files import write_alone
    from advnorm.report.page import render

    content = render(runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_alone(out, content.encode())
    return out


class WrittenPages(NamedTuple):
    """What :func:`write_paper_pages` did."""

    written: list[Path]
    damaged: list[str]
    """Records that it left out: a sentence each, with the path and what to do."""


def write_paper_pages(folder: Path, out: Path | None = None) -> WrittenPages:
    """Write a page for each paper that ``advnorm reproduce`` left records of in ``folder``.

    Pages go into ``out``, or beside the records. A damaged record is left out, and named on
    the page of its paper.
    """
    from advnorm.files import write_alone
    from advnorm.records import reproductions
    from advnorm.report.paper import render

    place, written, records = out or folder, [], reproductions(folder)
    place.mkdir(parents=True, exist_ok=True)
    for paper, artefacts in records.papers.items():
        path = place / f"{paper}.html"
        content = render(paper, artefacts, records.damaged.get(paper, ()))
        write_alone(path, content.encode())
        written.append(path)
    damaged = [text for texts in records.damaged.values() for text in texts]
    return WrittenPages(written, damaged)


def write_study(study: Study, out: Path) -> Path:
    """Write the page of a study to ``out``, and return it."""
    from advnorm.files import write_alone
    from advnorm.report.study_page import render

    out.parent.mkdir(parents=True, exist_ok=True)
    write_alone(out, render(study).encode())
    return out
