"""``advnorm demo``: four small models on digits."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.output import echo, resumable


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/demo"),
) -> None:
    """Train and attack four small models on digits, and write a report.

    Example: advnorm demo --out runs/demo
    """
    from advnorm.demo import closing, run
    from advnorm.progress import show_progress

    with show_progress() as progress, resumable():
        report = run(out, progress=progress)
    echo(closing(report))
