"""The command line: parse, call one function, print."""

import sys

from advnorm.cli import judging, making, showing
from advnorm.cli.base import app, echo
from advnorm.text import MESSAGE, cut

__all__ = ["app", "judging", "main", "making", "showing"]


def main() -> None:
    """Run the command line; a user's mistake is one sentence, not a traceback."""
    try:
        app()
    except (ValueError, OSError, NotImplementedError, FloatingPointError) as error:
        _fail(error)
    except Exception as error:
        if type(error).__name__ != "StoppedError":
            raise
        _stopped(error)


def _fail(error: Exception) -> None:
    """Print one message; an OSError's own text already names the path."""
    if type(error).__name__ == "OtherRankError":  # the first rank says it
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
