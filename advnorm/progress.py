"""Progress of long jobs: a bar on a terminal, plain lines elsewhere, none by default."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Protocol

from advnorm.text import printable

PLAIN_SECONDS = 5.0
"""Seconds between two plain lines."""


class Progress(Protocol):
    """What a long job reports to."""

    def update(self, done: int, total: int, text: str) -> None:
        """Report that ``done`` of ``total`` parts are done, with figures so far."""
        ...

    def line(self, text: str) -> None:
        """Print a line that stays on the screen."""
        ...


class Quiet:
    """Report nothing."""

    def update(self, done: int, total: int, text: str) -> None:
        """Ignore it."""

    def line(self, text: str) -> None:
        """Ignore it."""


class Plain:
    """Report in lines, at most one every few seconds: for logs and pipes."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._last = monotonic()

    def update(self, done: int, total: int, text: str) -> None:
        """Write a line if the last one is old enough."""
        left = self._clock.left(done, total)
        if monotonic() - self._last >= PLAIN_SECONDS:
            self.line(f"{done}/{total} {text} {left}")

    def line(self, text: str) -> None:
        """Write a line now; a closed terminal does not stop the job."""
        import sys

        with suppress(OSError):
            sys.stderr.write(printable(text) + "\n")
            sys.stderr.flush()
        self._last = monotonic()


class Bar:
    """Report on a terminal: one bar with the figures and the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=1, left="")
        self._clock = Clock()
        self._bar.start()

    def update(self, done: int, total: int, text: str) -> None:
        """Move the bar."""
        left = self._clock.left(done, total)
        self._bar.update(
            self._task, completed=done, total=total, description=printable(text), left=left
        )

    def line(self, text: str) -> None:
        """Write a line above the bar."""
        with suppress(OSError):  # a terminal that is closed
            self._bar.console.print(printable(text), highlight=False, markup=False)

    def close(self) -> None:
        """Remove the bar."""
        with suppress(OSError):
            self._bar.stop()


class Clock:
    """Estimates the remaining time from the parts done since its last start."""

    def __init__(self) -> None:
        self._start, self._first = monotonic(), 0
        self._total = self._done = 0

    def left(self, done: int, total: int) -> str:
        """Return ``"1:05 left"``; empty while there is no estimate."""
        if total != self._total or done < self._done:
            self._start, self._first, self._total = monotonic(), done, total
        self._done = done
        new = done - self._first
        if not new:
            return ""
        seconds = (monotonic() - self._start) / new * (total - done)
        return f"{clock(seconds)} left"


def clock(seconds: float) -> str:
    """Write a duration.

    >>> clock(65), clock(3725)
    ('1:05', '1:02:05')
    """
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole:02}" if hours else f"{minutes}:{whole:02}"


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Report to standard error: a bar if it is a terminal, else lines.

    Of the processes that torchrun starts, only the first one reports.
    """
    import os
    import sys

    if os.environ.get("RANK", "0") != "0":
        yield Quiet()
        return
    if not sys.stderr.isatty():
        yield Plain()
        return
    bar = Bar()
    try:
        yield bar
    finally:
        bar.close()
