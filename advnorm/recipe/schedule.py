"""The schedules that a recipe names."""

from typing import Annotated, Literal

from pydantic import Field

from advnorm import schedules
from advnorm.recipe.values import Factor, Positive, Spec


class Constant(Spec):
    """No schedule: the base value throughout."""

    kind: Literal["constant"] = "constant"

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.constant()


class Piecewise(Spec):
    """The base value times ``factor`` at each epoch of ``at``.

    Over the first ``warmup`` epochs it rises linearly from ``start`` times the base value.
    """

    kind: Literal["piecewise"] = "piecewise"
    at: tuple[Factor, ...]
    factor: Positive = 0.1
    warmup: Factor = 0.0
    start: Factor = 0.0

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.piecewise(
            at=self.at, factor=self.factor, warmup=self.warmup, start=self.start
        )


class Ramp(Spec):
    """From ``start`` to ``stop`` times the base value, linearly between two epochs."""

    kind: Literal["ramp"] = "ramp"
    first: Factor = 0.0
    last: Factor
    start: Factor = 0.0
    stop: Factor = 1.0

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.ramp(
            first=self.first, last=self.last, start=self.start, stop=self.stop
        )


class Cyclic(Spec):
    """Up from 0 to the base value at epoch ``peak``, down to 0 at epoch ``end``."""

    kind: Literal["cyclic"] = "cyclic"
    peak: Positive
    end: Positive

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.cyclic(peak=self.peak, end=self.end)


class Cosine(Spec):
    """Half a cosine down to 0 at epoch ``end``, after a linear ``warmup``."""

    kind: Literal["cosine"] = "cosine"
    end: Positive
    warmup: Factor = 0.0

    def build(self) -> schedules.Schedule:
        """Return the function of the epoch."""
        return schedules.cosine(end=self.end, warmup=self.warmup)


ScheduleSpec = Annotated[
    Constant | Piecewise | Ramp | Cyclic | Cosine, Field(discriminator="kind")
]
