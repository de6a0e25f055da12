"""``advnorm evaluate``: attack the models of runs."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, KeepIn, Runs, Set
from advnorm.cli.output import say


def evaluate(
    runs: Runs,
    set_: Set = None,
    out: KeepIn = None,
    device: Device = "auto",
    data: DataFolder = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Run whose corruption errors the others are divided by."),
    ] = None,
) -> None:
    """Measure clean and robust accuracy of runs, or of a model of your own.

    --set changes the recipe's 'evaluation' settings. Results are cached in the run folder.
    For a model of your own, --set data.name=NAME too.

    Example: advnorm evaluate runs/pgd --set eps=8/255 --set samples=500
    """
    from advnorm.cli.settings import evaluation_settings
    from advnorm.cli.targets import (
        TargetOptions,
        for_each_target,
        open_targets,
        say_next,
        split_settings,
    )
    from advnorm.records import Run
    from advnorm.report import corruption_errors
    from advnorm.runs import evaluate_run

    reference = Run.open(baseline) if baseline else None
    of_recipe, changes = split_settings(set_)
    options = TargetOptions(of_recipe, out, data, device)
    with open_targets(runs, evaluation_settings(changes), options) as targets:
        for_each_target(targets, evaluate_run, options)
        for target in targets:
            for line in corruption_errors(target.run, reference):
                say(f"{target.name}: {line}")
        say_next(targets, options)
