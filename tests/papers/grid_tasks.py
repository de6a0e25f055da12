"""What processes of a grid do; a module of its own, so that a new process finds it."""

import os
import signal
import time
from pathlib import Path

from advnorm.train import StoppedError


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
