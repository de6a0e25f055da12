"""The base class of records, and the two records that most others hold."""

from collections.abc import Mapping
from math import isfinite, sqrt
from typing import Annotated, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

Setting = str | int | float | bool | None
"""The value of a setting."""


class Record(BaseModel):
    """A frozen value with fixed fields, read from and written to JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    LIMIT: ClassVar[int] = 1 << 20
    """The largest size of its file, in bytes."""
    RENAMED: ClassVar[Mapping[str, str]] = {}
    """Fields of earlier versions, and what they are called now."""


R = TypeVar("R", bound=Record)

LARGE = 1 << 27
"""The limit of records with one value a sample, or with drawings."""
Count = Annotated[int, Field(ge=0, le=10**15)]
"""A count; a number that a float cannot hold exactly comes from a damaged file."""


class Accuracy(Record):
    """``correct`` of ``n`` samples, with its 95% interval."""

    correct: Count
    """Samples that were right."""
    n: Count
    """Samples that were tested."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not 0 <= self.correct <= self.n:
            raise ValueError(f"{self.correct} correct of {self.n} is impossible")
        return self

    @property
    def fraction(self) -> float:
        """The fraction of the samples that is correct."""
        return self.correct / self.n if self.n else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% score interval (Wilson, 1927); inside [0, 1] also at the ends.

        >>> low, high = Accuracy(correct=9, n=10).interval
        >>> round(low, 3), round(high, 3)
        (0.596, 0.982)
        """
        if not self.n:
            return (0.0, 1.0)
        z, p, n = 1.959963984540054, self.fraction, self.n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return (max(0.0, centre - half), min(1.0, centre + half))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.fraction:.1%} [{low:.1%}, {high:.1%}] n={self.n}"


class ThreatRecord(Record):
    """What the adversary may change."""

    norm: str
    """The norm of the ball, ``linf`` or ``l2``."""
    eps: float
    """Its radius, in the units of the images."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """The smallest and the largest value of a pixel."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        low, high = self.bounds
        if not (isfinite(self.eps) and isfinite(high - low) and low < high):
            raise ValueError(f"eps {self.eps} in bounds {self.bounds} is impossible")
        return self
