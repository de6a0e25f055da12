"""The schedules that a recipe names.

``times`` are the epochs that a schedule names. Between two of them it only rises or only
falls, and at each it may jump.
"""

from collections.abc import Sequence
from math import inf, nextafter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from advnorm import schedules
from advnorm.recipe.values import Epochs, Factor, Positive, Spec, Unit

LastEpoch = Annotated[Positive, Unit("epochs")]


class Constant(Spec):
    """No schedule: the base value throughout."""

    kind: Literal["constant"] = "constant"
    """This schedule."""

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.constant()

    @property
    def times(self) -> tuple[float, ...]:
        """None."""
        return ()


class Piecewise(Spec):
    """The base value times ``factor`` at each epoch of ``at``.

    Over the first ``warmup`` epochs it rises linearly from ``start`` times the base value.
    """

    kind: Literal["piecewise"] = "piecewise"
    """This schedule."""
    at: tuple[Epochs, ...]
    """When the value is multiplied by ``factor``."""
    factor: Positive = 0.1
    """What it is multiplied by."""
    warmup: Epochs = 0.0
    """Length of the rise at the beginning."""
    start: Factor = 0.0
    """Factor at which the rise begins."""

    @classmethod
    def at_shares(cls, epochs: int, shares: Sequence[float]) -> "Piecewise":
        """Divide by 10 after these shares of the epochs.

        >>> Piecewise.at_shares(200, (0.5, 0.75)).at
        (100.0, 150.0)
        """
        return cls(at=tuple(round(epochs * share, 6) for share in shares))

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.piecewise(
            at=self.at, factor=self.factor, warmup=self.warmup, start=self.start
        )

    @property
    def times(self) -> tuple[float, ...]:
        """The end of the rise, and every fall."""
        return (self.warmup, *self.at)


class Ramp(Spec):
    """From ``start`` to ``stop`` times the base value, linearly between two epochs."""

    kind: Literal["ramp"] = "ramp"
    """This schedule."""
    first: Epochs = 0.0
    """When the change begins."""
    last: Epochs
    """When it ends."""
    start: Factor = 0.0
    """Factor before it."""
    stop: Factor = 1.0
    """Factor after it."""

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.ramp(
            first=self.first, last=self.last, start=self.start, stop=self.stop
        )

    @property
    def times(self) -> tuple[float, ...]:
        """Both ends."""
        return (self.first, self.last)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.first > self.last:
            raise ValueError(
                f"first={self.first:g} is after last={self.last:g}: exchange them, or "
                "start and stop for a fall"
            )
        return self


class Cyclic(Spec):
    """Up from 0 to the base value at epoch ``peak``, down to 0 at epoch ``end``."""

    kind: Literal["cyclic"] = "cyclic"
    """This schedule."""
    peak: LastEpoch
    """When the factor is 1."""
    end: LastEpoch
    """When it is 0 again."""

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.cyclic(peak=self.peak, end=self.end)

    @property
    def times(self) -> tuple[float, ...]:
        """The peak and the end."""
        return (self.peak, self.end)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.peak > self.end:
            raise ValueError(
                f"peak={self.peak:g} is after end={self.end:g}: write a peak before it"
            )
        return self


class Cosine(Spec):
    """Half a cosine down to 0 at epoch ``end``, after a linear ``warmup``."""

    kind: Literal["cosine"] = "cosine"
    """This schedule."""
    end: LastEpoch
    """When the factor is 0."""
    warmup: Epochs = 0.0
    """Length of the linear rise at the beginning."""

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.cosine(end=self.end, warmup=self.warmup)

    @property
    def times(self) -> tuple[float, ...]:
        """The end of the rise, and of the fall."""
        return (self.warmup, self.end)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.warmup > self.end:
            raise ValueError(
                f"warmup={self.warmup:g} is longer than until end={self.end:g}: write a "
                "shorter one"
            )
        return self


ScheduleSpec = Annotated[
    Constant | Piecewise | Ramp | Cyclic | Cosine, Field(discriminator="kind")
]
"""One of the schedules, told apart by its ``kind``."""


def largest(schedule: ScheduleSpec, epochs: int) -> float:
    """Return the largest factor of a training of so many epochs.

    >>> largest(Ramp(last=2, stop=1.5), 3), largest(Cyclic(peak=2.5, end=5), 3)
    (1.5, 1.0)
    """
    value = schedule.build()
    ends = (0.0, *schedule.times, float(epochs))
    times = [time for end in ends for time in (nextafter(end, -inf), end)]
    return max(value(time) for time in times if 0 <= time < epochs)
