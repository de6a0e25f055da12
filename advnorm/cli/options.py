"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[list[Path], typer.Argument(help="Run folders.")]
RecipeName = Annotated[
    str, typer.Argument(help="A recipe of 'advnorm list recipes', or a YAML file.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto.")]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder of data sets [ADVNORM_DATA].")
]
