"""``advnorm evaluate``: attack the models of runs."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, Runs, Set
from advnorm.cli.output import say


def evaluate(
    runs: Runs,
    set_: Set = None,
    device: Device = "auto",
    data: DataFolder = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Run whose corruption errors the others are divided by."),
    ] = None,
) -> None:
    """Measure clean and robust accuracy of trained runs.

    --set changes the recipe's 'evaluation' settings. Results are cached in the run folder.

    Example: advnorm evaluate runs/pgd --set eps=8/255 --set samples=500
    """
    from advnorm.cli.settings import evaluation_settings, for_each_run
    from advnorm.records import Run
    from advnorm.report import corruption_errors
    from advnorm.runs import evaluate_run

    reference = Run.open(baseline) if baseline else None
    settings = evaluation_settings(set_)
    for run in for_each_run(runs, settings, evaluate_run, data=data, device=device):
        for line in corruption_errors(run, reference):
            say(f"{run.path}: {line}")
    say(f"next: advnorm report {' '.join(map(str, runs))} --out report.html")
