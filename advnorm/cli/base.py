"""What the commands share: the application, its usual options, and who speaks."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from advnorm.text import MESSAGE, cut, printable

app = typer.Typer(
    name="advnorm",
    help="How should a network be normalized when it must resist an adversary?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Fetch data sets and say where they are.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Runs = Annotated[list[Path], typer.Argument(help="Run folders.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto.")]
Root = Annotated[
    Path | None, typer.Option("--data", help="Folder of data sets [ADVNORM_DATA].")
]


def echo(text: object, *, err: bool = False) -> None:
    """Print a line: the only way out, so that no file or name can steer the terminal.

    Where nobody reads standard error any more, do without it; a result that nobody gets
    is an error.
    """
    try:
        typer.echo(printable(str(text)), err=err)
    except OSError:
        if not err:
            raise
        # the exit would try again, and end with another code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def say(text: str) -> None:
    """Print a result, once: of the processes that torchrun starts, the first one does."""
    if leads():
        echo(text)


def leads() -> bool:
    """Tell whether this is the process that speaks."""
    return os.environ.get("RANK", "0") == "0"


def end(problems: Sequence[str]) -> None:
    """Name what a command could not do, and exit with 1 if there is any."""
    for problem in problems:
        echo(f"advnorm: {cut(problem, MESSAGE)}", err=True)
    if problems:
        raise typer.Exit(1)
