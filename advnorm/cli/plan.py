"""``advnorm plan``: what a recipe costs."""

from typing import Annotated

import typer

from advnorm.cli.options import RecipeName, Set
from advnorm.cli.output import echo


def plan(
    recipe: RecipeName,
    set_: Set = None,
    device: Annotated[str, typer.Option(help="v100, a100, ..., or all.")] = "all",
) -> None:
    """Estimate what a recipe costs: operations, memory, device-hours. Nothing is run.

    Example: advnorm plan cifar10.pgd --device a100
    """
    from advnorm.cli.user_models import named_recipe
    from advnorm.runs.devices import named_devices
    from advnorm.runs.plan import table

    devices = named_devices(device)
    echo(table(named_recipe(recipe, set_ or []), devices))
