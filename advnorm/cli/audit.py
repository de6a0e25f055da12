"""``advnorm audit``: check whether robustness is real."""

from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, Runs, Set
from advnorm.cli.output import echo


def audit(
    runs: Runs,
    suite: Annotated[
        str,
        typer.Option(help="Strong attacks, separated by commas; 'standard' is AutoAttack."),
    ] = "apgd_ce-50,apgd_t-20,square-500",
    set_: Set = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Check whether the robustness of runs is real, and flag their results if not.

    --set eps=0.1 audits at another radius than the recipe's, samples=500 on more images.

    Example: advnorm audit runs/pgd --suite standard --set samples=500
    """
    from advnorm.cli.settings import (
        RECIPE_THREAT,
        SAMPLES,
        THREAT,
        changed_recipe,
        evaluation_settings,
    )
    from advnorm.progress import show_progress
    from advnorm.records import Run
    from advnorm.runs import audit_run

    changes = [*RECIPE_THREAT, *evaluation_settings(set_, (*THREAT, *SAMPLES))]
    opened = [Run.open(path) for path in runs]
    attacks = tuple(name.strip() for name in suite.split(","))
    with show_progress() as progress:
        for run in opened:
            recipe = changed_recipe(run, changes)
            audits = audit_run(
                run, recipe, suite=attacks, root=data, device=device, progress=progress
            )
            echo("\n".join([f"{run.path}:", *map(str, audits)]))
