"""Schedules: functions from training time, in epochs, to a factor of a base value."""

from collections.abc import Callable, Sequence
from math import cos, pi

Schedule = Callable[[float], float]


def constant() -> Schedule:
    """Keep the base value."""
    return lambda epoch: 1.0


def piecewise(
    *, at: Sequence[float], factor: float = 0.1, warmup: float = 0.0, start: float = 0.0
) -> Schedule:
    """Multiply by ``factor`` at each of the epochs ``at``, after a warmup from ``start``.

    >>> lr = piecewise(at=[35, 70], warmup=5, start=0.5)
    >>> lr(0), lr(2.5), lr(5), lr(35), round(lr(70), 3)
    (0.5, 0.75, 1.0, 0.1, 0.01)
    """
    up = ramp(first=0, last=warmup, start=start if warmup else 1.0)
    return lambda epoch: up(epoch) * factor ** sum(epoch >= boundary for boundary in at)


def ramp(*, first: float, last: float, start: float = 0.0, stop: float = 1.0) -> Schedule:
    """Go from ``start`` to ``stop`` linearly between two epochs, constant outside.

    >>> eps = ramp(first=10, last=60)
    >>> eps(10), eps(35), eps(99)
    (0.0, 0.5, 1.0)
    """

    def value(epoch: float) -> float:
        done = min(max((epoch - first) / max(last - first, 1e-12), 0.0), 1.0)
        return start + (stop - start) * done

    return value


def cyclic(*, peak: float, end: float) -> Schedule:
    """Rise linearly from 0 to 1 at epoch ``peak``, then fall linearly to 0 at ``end``.

    >>> lr = cyclic(peak=2, end=10)
    >>> lr(1), lr(2), lr(6)
    (0.5, 1.0, 0.5)
    """
    up = ramp(first=0, last=peak)
    down = ramp(first=peak, last=end, start=1.0, stop=0.0)
    return lambda epoch: up(epoch) * down(epoch)


def cosine(*, end: float, warmup: float = 0.0) -> Schedule:
    """Rise linearly over ``warmup`` epochs, then follow half a cosine to 0 at ``end``.

    >>> lr = cosine(end=10)
    >>> lr(0), round(lr(5), 3), round(lr(10), 3)
    (1.0, 0.5, 0.0)
    """
    up = ramp(first=0, last=warmup, start=0.0 if warmup else 1.0)
    done = ramp(first=warmup, last=end)
    return lambda epoch: up(epoch) * (1 + cos(pi * done(epoch))) / 2
