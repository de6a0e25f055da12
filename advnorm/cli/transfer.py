"""``advnorm transfer``: test runs on the adversarial examples of others."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, Set
from advnorm.cli.output import is_first_process, say


def transfer(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders.")],
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file to write.")] = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Attack each run with PGD-40, and test all runs on its adversarial examples.

    --set changes the recipes' 'evaluation' settings.

    Example: advnorm transfer runs/batch runs/group --set samples=500 --out transfer.json
    """
    import json

    from advnorm.cli.settings import (
        RECIPE_THREAT,
        SAMPLES,
        THREAT,
        changed_recipe,
        evaluation_settings,
    )
    from advnorm.files import write_alone
    from advnorm.progress import show_progress
    from advnorm.records import Run
    from advnorm.runs import transfer_runs

    settings = evaluation_settings(set_, ("conditions", *THREAT, "step_ratio", *SAMPLES))
    changes = ["evaluation.conditions=[pgd-40]", *RECIPE_THREAT, *settings]
    opened = [Run.open(path) for path in runs]
    recipes = [changed_recipe(run, changes) for run in opened]
    with show_progress() as progress:
        matrices = transfer_runs(
            opened, recipes, root=data, device=device, progress=progress
        )
    say("\n\n".join(map(str, matrices)))
    if out is not None and is_first_process():
        records = [matrix.model_dump(mode="json") for matrix in matrices]
        write_alone(out, json.dumps(records, indent=1).encode())
