"""The time of a piece of work that may be disturbed: of a few repeats, a quick one."""

from collections.abc import Callable, Sequence

Clock = Callable[[], float]
REPEATS = 5
PATIENCE = 1.5
"""Seconds for the repeats of one piece, after the first."""
LONG = 6.0
"""Seconds of a call that may be expected before it is tried."""


def undisturbed(seconds: Sequence[float]) -> float:
    """Return the lower quartile: other work on the machine only ever slows a run down.

    >>> undisturbed([9.0, 2.0, 1.0, 3.0, 4.0])
    2.0
    """
    return sorted(seconds)[len(seconds) // 4]


def repeat(run: Callable[[], float]) -> float:
    """Return the seconds of an undisturbed run of several, fewer if they take long."""
    seconds = [run()]
    if seconds[0] < PATIENCE:
        seconds = []  # the first warmed up
    while len(seconds) < REPEATS and (not seconds or sum(seconds) < PATIENCE):
        seconds.append(run())
    return undisturbed(seconds)
