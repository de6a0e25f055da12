"""``advnorm reproduce``: regenerate tables and figures of the papers."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device
from advnorm.cli.output import exit_with, resumable, say


def reproduce(
    artefacts: Annotated[
        list[str], typer.Argument(help="Such as galloway2019/table1, or a whole paper.")
    ],
    scale: Annotated[
        str, typer.Option(help="smoke (a minute), reduced (small machine) or full.")
    ] = "smoke",
    seeds: Annotated[int, typer.Option(help="Runs of each row.")] = 1,
    out: Annotated[Path, typer.Option(help="Where runs and records go.")] = Path(
        "reproduced"
    ),
    on: Annotated[
        str, typer.Option(help="Number of parallel processes, or ray for a cluster.")
    ] = "1",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="row=NAME", help="Only this row; repeatable."),
    ] = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Regenerate tables and figures of the papers; resumes where it stopped.

    Example: advnorm reproduce xie2020/table1 --scale reduced --seeds 2 --on 4
    """
    from advnorm.papers import (
        artefact_names,
        check_request,
        reproduce_each,
        rows_of,
        scale_of,
    )
    from advnorm.progress import show_progress
    from advnorm.report import reproduction_text, write_paper_pages
    from advnorm.studies.grid import Workspace, parse_workers

    size, workspace = scale_of(scale), Workspace(out, data, device, parse_workers(on))
    names, rows = artefact_names(artefacts), rows_of(set_ or [])
    problems: list[str] = []
    check_request(names, workspace, scale=size, seeds=seeds, rows=rows)
    with show_progress() as progress, resumable():
        for outcome in reproduce_each(
            names, workspace, scale=size, seeds=seeds, rows=rows, progress=progress
        ):
            problems += outcome.problems
            if outcome.record is not None:
                say(reproduction_text(outcome.record))
    pages = write_paper_pages(out)
    for page in pages.written:
        say(f"wrote {page}")
    reported = "\n".join(problems)
    exit_with([*problems, *(text for text in pages.damaged if text not in reported)])
