"""What processes of a grid do; a module of its own, so that a new process finds it."""

import os
import signal
import time
from pathlib import Path

from advnorm.studies.grid import run_tasks
from advnorm.training import StoppedError


def square(number: int) -> int:
    if number == 2:
        raise ValueError("two is not wanted")
    return number * number


def die(number: int) -> int:
    if number == 1:
        os._exit(3)
    return number


def linger(folder: str) -> int:
    """Say that a task began, wait for a signal and stop, as training does."""
    begun = Path(folder) / f"{time.monotonic_ns()}.begun"
    try:
        begun.touch()
        time.sleep(60)
    except KeyboardInterrupt:
        raise StoppedError(signal.SIGTERM) from None
    return 0


def stay(folder: str) -> int:
    """Say who is at work; the second one ends at once, the first waits for a signal."""
    place = Path(folder)
    first = not list(place.glob("*.pid"))
    (place / f"{os.getpid()}.pid").touch()
    try:
        time.sleep(120 if first else 0.5)
    except KeyboardInterrupt:
        (place / "stopped").touch()
        raise StoppedError(signal.SIGTERM) from None
    return 0


def begin(folder: str) -> None:
    """Wait for two processes, until killed."""
    list(run_tasks(stay, [folder] * 2, on=2))
