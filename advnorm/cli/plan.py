"""``advnorm plan``: what a recipe costs."""

from typing import TYPE_CHECKING, Annotated

import typer

from advnorm.cli.options import DataFolder, RecipeName, Set
from advnorm.cli.output import echo

if TYPE_CHECKING:
    from advnorm.runs.forecast import Accuracies


def plan(
    recipe: RecipeName,
    set_: Set = None,
    device: Annotated[str, typer.Option(help="v100, a100, ..., or all.")] = "all",
    data: DataFolder = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Time this machine first: about a minute.")
    ] = False,
    accuracy: Annotated[
        str,
        typer.Option(
            metavar="CLEAN,ROBUST",
            help="Accuracies that times of evaluations assume, such as 0.9,0.5.",
        ),
    ] = "1,1",
) -> None:
    """Estimate what a recipe costs: operations, memory, device-hours. Nothing is run.

    With --calibrate, short pieces of its training, attacks and certificates are timed, and
    from then on the times on this machine are printed too.

    Example: advnorm plan cifar10.pgd --device a100
    """
    from advnorm.cli.user_models import named_recipe
    from advnorm.progress import show_progress
    from advnorm.runs import forecast
    from advnorm.runs.devices import named_devices
    from advnorm.runs.plan import table
    from advnorm.training.build import choose_device

    devices, assumed = named_devices(device), _accuracies(accuracy)
    changed = named_recipe(recipe, set_ or [])
    echo(table(changed, devices))
    if calibrate:
        with show_progress() as progress:
            forecast.store(forecast.calibrate(changed, root=data, progress=progress))
    here = forecast.Machine.here(str(choose_device("auto")))
    calibration, problem = forecast.load(changed, here)
    if problem:
        echo(f"\n{problem}")
    if calibration:
        times = forecast.forecast(changed, calibration, assumed, root=data)
        echo(forecast.table(times, calibration, assumed))


def _accuracies(text: str) -> "Accuracies":
    """Read ``CLEAN,ROBUST``."""
    from advnorm.numbers import parse_number
    from advnorm.runs.forecast import Accuracies

    try:
        clean, robust = map(parse_number, text.split(","))
    except ValueError:
        clean, robust = -1.0, -1.0
    if not 0 <= robust <= clean <= 1:
        raise ValueError(
            f"--accuracy={text} is not understood: write the clean accuracy, a comma and "
            "the robust one, which is not larger, such as 0.9,0.5"
        )
    return Accuracies(clean, robust)
