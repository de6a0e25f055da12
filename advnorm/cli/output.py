"""What commands print, and how they end."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from advnorm.text import MESSAGE, cut, printable


def echo(text: object, *, err: bool = False) -> None:
    """Print a line, without control characters: no file or name can steer the terminal.

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
    """Print a result once: under torchrun, only rank 0 does."""
    if is_first_process():
        echo(text)


def is_first_process() -> bool:
    """Return whether this is the process that prints, without importing torch."""
    return os.environ.get("RANK", "0") == "0"


def exit_with(problems: Sequence[str]) -> None:
    """Print what a command could not do, and exit with 1 if there is any."""
    for problem in problems:
        echo(f"advnorm: {cut(problem, MESSAGE)}", err=True)
    if problems:
        raise typer.Exit(1)


@contextmanager
def resumable() -> Iterator[None]:
    """Say, when the command is stopped, that the same command resumes it."""
    from advnorm.training import StoppedError

    try:
        yield
    except (StoppedError, KeyboardInterrupt) as error:
        stopped = error if isinstance(error, StoppedError) else StoppedError(signal.SIGINT)
        stopped.resume = shlex.join(["advnorm", *sys.argv[1:]])
        raise stopped from None
