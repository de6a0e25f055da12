"""``advnorm study``: which of several settings to choose."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, RecipeName, Set
from advnorm.cli.output import exit_with, resumable, say


def study(
    recipe: RecipeName,
    over: Annotated[
        list[str],
        typer.Option(metavar="KEY=A,B,...", help="Settings to compare; repeatable."),
    ],
    seeds: Annotated[int, typer.Option(help="Runs of each combination.")] = 3,
    out: Annotated[Path, typer.Option(help="Where runs and the answer go.")] = Path(
        "study"
    ),
    on: Annotated[
        str, typer.Option(help="Number of parallel processes, or ray for a cluster.")
    ] = "1",
    budget: Annotated[
        float | None,
        typer.Option(metavar="HOURS", help="Stop what is clearly behind; fewer seeds."),
    ] = None,
    set_: Set = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Train and evaluate all combinations of settings; say which to choose.

    Resumes where it stopped, and adds seeds to what is there.

    Example: advnorm study digits.pgd --over norm.name=batch,group,none --seeds 3
    """
    from advnorm.cli.user_models import named_recipe
    from advnorm.progress import show_progress
    from advnorm.report import study_text, write_study
    from advnorm.studies import cost_text, parse_over, run_study
    from advnorm.studies.grid import Workspace, parse_workers

    base, values = named_recipe(recipe, set_ or []), parse_over(over)
    workspace = Workspace(out, data, device, parse_workers(on))
    say(cost_text(base, values, seeds))
    with show_progress() as progress, resumable():
        record = run_study(
            base, values, workspace, seeds=seeds, budget=budget, progress=progress
        )
    page = write_study(record, out / "study.html")
    say(f"{study_text(record)}\nwrote {page}")
    exit_with([f"{name} failed: {why}" for name, why in record.failed.items()])
