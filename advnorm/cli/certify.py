"""``advnorm certify``: prove robust accuracy of runs."""

from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, KeepIn, Runs, Set


def certify(
    runs: Runs,
    method: Annotated[str, typer.Option(help="ibp, crown-ibp or crown.")] = "crown",
    set_: Set = None,
    out: KeepIn = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Prove for how many test samples no perturbation changes the prediction.

    --set changes the recipe's 'evaluation' settings; for a model of your own, --set
    data.name=NAME too.

    Example: advnorm certify runs/ibp --method crown-ibp --set eps=0.1 --set samples=100
    """
    from functools import partial

    from advnorm.bounds import METHODS
    from advnorm.cli.settings import SAMPLES, THREAT, evaluation_settings
    from advnorm.cli.targets import (
        TargetOptions,
        for_each_target,
        open_targets,
        say_next,
        split_settings,
    )
    from advnorm.runs import certify_run

    METHODS[method]  # an unknown name is refused before a run is opened
    of_recipe, changes = split_settings(set_)
    settings = evaluation_settings(changes, (*THREAT, "data", *SAMPLES))
    options = TargetOptions(of_recipe, out, data, device)
    with open_targets(runs, settings, options) as targets:
        for_each_target(targets, partial(certify_run, method=method), options)
        say_next(targets, options)
