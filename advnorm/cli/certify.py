"""``advnorm certify``: prove robust accuracy of runs."""

from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, Runs, Set
from advnorm.cli.output import say


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
    from functools import partial

    from advnorm.bounds import METHODS
    from advnorm.cli.settings import SAMPLES, THREAT, evaluation_settings, for_each_run
    from advnorm.runs import certify_run

    METHODS[method]  # an unknown name is refused before a run is opened
    settings = evaluation_settings(set_, (*THREAT, "data", *SAMPLES))
    certify = partial(certify_run, method=method)
    for_each_run(runs, settings, certify, data=data, device=device)
    say(f"next: advnorm report {' '.join(map(str, runs))} --out report.html")
