"""``advnorm report``: a page that compares runs."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, Set
from advnorm.cli.output import echo, exit_with, say
from advnorm.cli.targets import (
    TargetOptions,
    for_each_target,
    open_targets,
    split_settings,
)
from advnorm.cli.user_models import is_model


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders, your models (FILE.py:NAME), or one folder of 'reproduce'."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write (default report.html). For a folder of 'reproduce': "
            "the folder for one page per paper (default: the same folder)."
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Compare two runs sample by sample: print the differences of the recipes, "
            "paired tests, and the samples that changed sides. A page needs --out.",
        ),
    ] = False,
    set_: Set = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Write a self-contained HTML page that compares runs, or one per reproduced paper.

    A model of your own is evaluated first; --set changes how, as in 'evaluate'.

    Example: advnorm report runs/batch runs/group --out report.html
    """
    from advnorm.records import Run, holds_reproductions
    from advnorm.report import diff_text, write, write_paper_pages

    if diff and (len(runs) != 2 or any(is_model(str(path)) for path in runs)):
        raise ValueError("--diff compares two run folders: advnorm report A B --diff")
    if diff:
        first, second = (Run.open(path) for path in runs)
        say(diff_text(first, second))
        if out is None:
            return None
    if len(runs) == 1 and holds_reproductions(runs[0]):
        pages = write_paper_pages(runs[0], out)
        for page in pages.written:
            echo(f"wrote {page}")
        return exit_with(pages.damaged)
    page = out or Path("report.html")
    if any(is_model(str(path)) for path in runs):
        _report_models(runs, page, set_, TargetOptions((), None, data, device))
    elif set_:
        raise ValueError("--set is for a model of yours: results of runs are as they are")
    else:
        write([Run.open(path) for path in runs], page)
    echo(f"wrote {page}")


def _report_models(
    runs: list[Path], page: Path, set_: list[str] | None, options: TargetOptions
) -> None:
    """Evaluate the models among the runs, and write the page."""
    from advnorm.cli.settings import evaluation_settings
    from advnorm.report import write
    from advnorm.runs import evaluate_run

    of_recipe, changes = split_settings(set_)
    options = options._replace(of_recipe=of_recipe)
    with open_targets(runs, evaluation_settings(changes), options) as targets:
        own = [target for target in targets if is_model(target.name)]
        for_each_target(own, evaluate_run, options)
        write([target.run for target in targets], page)
