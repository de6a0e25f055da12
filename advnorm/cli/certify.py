"""``advnorm certify``: prove robust accuracy of runs."""

from typing import Annotated

import typer

from advnorm.cli.evaluate import evaluate
from advnorm.cli.options import DataFolder, Device, Runs, Set


def certify(
    runs: Runs,
    method: Annotated[str, typer.Option(help="ibp, crown-ibp or crown.")] = "crown",
    set_: Set = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Prove for how many test samples no perturbation changes the prediction.

    --set changes the recipe's 'evaluation' settings.

    Example: advnorm certify runs/ibp --method crown-ibp --set eps=0.1 --set samples=100
    """
    from advnorm.bounds import METHODS
    from advnorm.cli.settings import SAMPLES, THREAT, evaluation_settings
    from advnorm.registry import unknown

    if method not in METHODS:
        raise unknown("certificate", method, list(METHODS))
    changes = evaluation_settings(set_, (*THREAT, "data", *SAMPLES))
    evaluate(runs, [*changes, f"conditions=[{method}]"], device, data)
