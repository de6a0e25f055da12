"""The command line: each command parses, calls one function and prints."""

import sys
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import typer
from typer.core import TyperGroup

from advnorm.cli import (
    audit,
    certify,
    data,
    demo,
    diagnose,
    evaluate,
    export,
    names,
    perturb,
    plan,
    report,
    reproduce,
    study,
    train,
    transfer,
)
from advnorm.cli.output import echo
from advnorm.cli.user_models import explained_code
from advnorm.text import MESSAGE, cut

__all__ = ["app", "main"]

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "train": train.train,
    "evaluate": evaluate.evaluate,
    "certify": certify.certify,
    "audit": audit.audit,
    "diagnose": diagnose.diagnose,
    "transfer": transfer.transfer,
    "perturb": perturb.perturb,
    "export": export.export,
    "report": report.report,
    "plan": plan.plan,
    "study": study.study,
    "reproduce": reproduce.reproduce,
    "list": names.list_names,
}
"""In the order of ``advnorm --help``; the group ``data`` comes last."""


class _Ordered(TyperGroup):
    """Lists commands in the order of :data:`COMMANDS`; typer puts groups first."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *(name for name in self.commands if name not in COMMANDS)]


app = typer.Typer(
    name="advnorm",
    help="How should a network be normalized when it must resist an adversary?",
    cls=_Ordered,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
_data = typer.Typer(help="Download data sets.", no_args_is_help=True)
_data.command("get")(data.get)
app.add_typer(_data, name="data")


def main() -> None:
    """Run the command line; a user's mistake is one sentence, not a traceback."""
    try:
        copy_context().run(_run)  # which forgets the models that the user names
    except (ValueError, OSError, NotImplementedError, FloatingPointError) as error:
        _fail(error)
    except Exception as error:
        if type(error).__name__ != "StoppedError":
            raise
        _stopped(error)


def _run() -> None:
    with explained_code():
        app()


def _fail(error: Exception) -> None:
    """Print one message and exit with 2; an OSError's own text already names the path."""
    if type(error).__name__ == "OtherRankError":  # that rank prints the reason
        sys.exit(2)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.filename and str(error.filename) not in text:
        text = f"{error.filename}: {text}"
    echo(f"advnorm: {cut(text, MESSAGE)}", err=True)
    if getattr(error, "resume", ""):  # another rank is lost
        echo(f"go on with: {getattr(error, 'resume', '')}", err=True)
    sys.exit(2)


def _stopped(error: Exception) -> None:
    from advnorm.training import StoppedError

    assert isinstance(error, StoppedError)
    echo(f"advnorm: {error}; everything done so far is saved.", err=True)
    if error.resume:
        echo(f"go on with: {error.resume}", err=True)
    sys.exit(128 + error.signum)
