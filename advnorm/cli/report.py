"""``advnorm report``: a page that compares runs."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.output import echo, exit_with


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or one folder of 'reproduce'.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write (default report.html). For a folder of 'reproduce': "
            "the folder for one page per paper (default: the same folder)."
        ),
    ] = None,
) -> None:
    """Write a self-contained HTML page that compares runs, or one per reproduced paper.

    Example: advnorm report runs/batch runs/group --out report.html
    """
    from advnorm.records import Run, holds_reproductions
    from advnorm.report import write, write_paper_pages

    if len(runs) == 1 and holds_reproductions(runs[0]):
        pages = write_paper_pages(runs[0], out)
        for page in pages.written:
            echo(f"wrote {page}")
        return exit_with(pages.damaged)
    page = write([Run.open(path) for path in runs], out or Path("report.html"))
    echo(f"wrote {page}")
