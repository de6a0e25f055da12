"""``advnorm transfer``: test runs on the adversarial examples of others."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, Set
from advnorm.cli.output import is_first_process, say


def transfer(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Two or more: run folders, or models of yours, FILE.py:NAME."),
    ],
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

    from advnorm.cli.settings import RECIPE_THREAT, SAMPLES, THREAT, evaluation_settings
    from advnorm.cli.targets import TargetOptions, open_targets, split_settings
    from advnorm.files import write_alone
    from advnorm.progress import show_progress
    from advnorm.runs import transfer_runs

    of_recipe, changes = split_settings(set_)
    allowed = ("conditions", *THREAT, "step_ratio", *SAMPLES)
    settings = ["evaluation.conditions=[pgd-40]", *RECIPE_THREAT]
    settings += evaluation_settings(changes, allowed)
    options = TargetOptions(of_recipe, None, data, device)
    with open_targets(runs, settings, options) as targets, show_progress() as progress:
        matrices = transfer_runs(
            [target.run for target in targets],
            [target.recipe for target in targets],
            root=data,
            device=device,
            progress=progress,
        )
    say("\n\n".join(map(str, matrices)))
    if out is not None and is_first_process():
        records = [matrix.model_dump(mode="json") for matrix in matrices]
        write_alone(out, json.dumps(records, indent=1).encode())
