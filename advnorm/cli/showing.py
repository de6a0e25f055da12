"""Commands that show what there is."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.base import Root, app, data_app, echo, end


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or one folder of reproductions.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write (report.html); of reproductions, a folder for a page "
            "a paper (their own)."
        ),
    ] = None,
) -> None:
    """Write one self-contained page that compares runs, or one for each paper."""
    from advnorm.records import Run, holds_reproductions
    from advnorm.report import write, write_paper_pages

    if len(runs) == 1 and holds_reproductions(runs[0]):
        pages = write_paper_pages(runs[0], out)
        for page in pages.written:
            echo(f"wrote {page}")
        return end(pages.damaged)
    page = write([Run.open(path) for path in runs], out or Path("report.html"))
    echo(f"wrote {page}")


@app.command(name="list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="recipes, models, norms, ...; or all.")
    ] = "all",
) -> None:
    """List what can be named: recipes, data, models, norms, objectives, attacks, ..."""
    from advnorm.listing import listing

    echo(listing(kind))


@data_app.command(name="get")
def get(
    name: Annotated[str, typer.Argument(help="A data set of 'advnorm list data'.")],
    data: Root = None,
) -> None:
    """Download a data set, once, with size and digest checked."""
    from advnorm.data.download import get as download
    from advnorm.progress import shown

    with shown() as progress:
        paths = download(
            name,
            root=data,
            report=lambda file, done, total: progress.update(done, max(total, done), file),
        )
    for path in paths:
        echo(path)
