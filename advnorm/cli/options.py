"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[
    list[Path], typer.Argument(help="Run folders, or models of yours: FILE.py:NAME.")
]
KeepIn = Annotated[
    Path | None,
    typer.Option(
        "--out", help="For a model of yours: a run folder that keeps the results."
    ),
]
RecipeName = Annotated[
    str,
    typer.Argument(
        help="A recipe of 'advnorm list recipes', a YAML file, or your model: FILE.py:NAME."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto.")]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder of data sets [ADVNORM_DATA].")
]
