"""``advnorm audit``: check whether robustness is real."""

from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, KeepIn, Runs, Set
from advnorm.cli.output import echo


def audit(
    runs: Runs,
    suite: Annotated[
        str,
        typer.Option(help="Strong attacks, separated by commas; 'standard' is AutoAttack."),
    ] = "apgd_ce-50,apgd_t-20,square-500",
    set_: Set = None,
    out: KeepIn = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Check whether the robustness of runs is real, and flag their results if not.

    --set eps=0.1 audits at another radius than the recipe's, samples=500 on more images.

    Example: advnorm audit runs/pgd --suite standard --set samples=500
    """
    from advnorm.cli.settings import RECIPE_THREAT, SAMPLES, THREAT, evaluation_settings
    from advnorm.cli.targets import TargetOptions, open_targets, split_settings
    from advnorm.progress import show_progress
    from advnorm.runs import audit_run

    of_recipe, changes = split_settings(set_)
    settings = [*RECIPE_THREAT, *evaluation_settings(changes, (*THREAT, *SAMPLES))]
    options = TargetOptions(of_recipe, out, data, device)
    attacks = tuple(name.strip() for name in suite.split(","))
    with open_targets(runs, settings, options) as targets, show_progress() as progress:
        for run, recipe, name in targets:
            audits = audit_run(
                run, recipe, suite=attacks, root=data, device=device, progress=progress
            )
            echo("\n".join([f"{name}:", *map(str, audits)]))
