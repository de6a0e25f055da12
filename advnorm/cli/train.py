"""``advnorm train``: train a recipe into a run folder."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, RecipeName, Set
from advnorm.cli.output import say


def train(
    recipe: RecipeName,
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    set_: Set = None,
    device: Device = "auto",
    data: DataFolder = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out.")
    ] = False,
) -> None:
    """Train a recipe into a run folder.

    --set model.name=FILE.py:NAME trains a model of your own.

    Example: advnorm train digits.pgd --set norm.name=group --out runs/group
    """
    from advnorm.cli.user_models import named_recipe
    from advnorm.progress import show_progress
    from advnorm.ranks import PeerLostError
    from advnorm.training import StoppedError, naming_options
    from advnorm.training import train as train_run

    changed = named_recipe(recipe, set_ or [])
    options = ["--data", str(data)] if data else []
    options += ["--device", device] if device != "auto" else []
    with show_progress() as progress:
        try:
            train_run(
                changed, out, root=data, device=device, resume=resume, progress=progress
            )
        except (StoppedError, PeerLostError) as stopped:
            if stopped.resume:
                stopped.resume = shlex.join([*shlex.split(stopped.resume), *options])
            raise
    following = shlex.join(["advnorm", "evaluate", str(out), *options, *naming_options()])
    say(f"trained: {out}\nnext: {following}")
