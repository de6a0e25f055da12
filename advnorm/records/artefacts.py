"""The record of a reproduction of a table or figure."""

from collections.abc import Mapping
from math import isfinite, sqrt
from statistics import mean, stdev
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from advnorm.records.base import LARGE, Accuracy, Record
from advnorm.records.diagnoses import Panel
from advnorm.t_test import FEWEST_SEEDS, Estimate

Verdict = Literal["holds", "does not hold", "cannot be told"]
"""What became of a claim."""
Scale = Literal["smoke", "reduced", "full"]
"""How much of a paper's setting is run: a minute, a small machine, all of it."""
SCALES: tuple[Scale, ...] = ("smoke", "reduced", "full")
"""From the smallest to the largest."""
MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "cannot be told": "?"}
"""One sign for each verdict on a claim."""

_SEVERAL: dict[Verdict, str] = {
    "holds": "hold",
    "does not hold": "do not hold",
    "cannot be told": "cannot be told",
}


def counted(count: int, verdict: Verdict) -> str:
    """Say how many claims have a verdict.

    >>> counted(8, "holds"), counted(0, "does not hold"), counted(1, "does not hold")
    ('8 hold', '0 do not hold', '1 does not hold')
    """
    return f"{count} {verdict if count == 1 else _SEVERAL[verdict]}"


class Published(Record):
    """A number as a paper prints it, with its standard error where it has one."""

    value: float
    """As printed."""
    error: float | None = None
    """Its standard error."""


class Measured(Record):
    """One number over seeds."""

    values: tuple[float, ...] = Field(min_length=1)
    """One a seed."""
    published: Published | None = None
    """The number of the paper."""
    seeds: tuple[int, ...] = ()
    """Whose the values are, where some are missing; else they are of all seeds in turn."""
    n: int | None = Field(default=None, ge=0)
    """Of accuracies in percent: how many samples are behind each, where that is known."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.n and not all(0 <= value <= 100 for value in self.values):
            raise ValueError(f"{self.values} are no accuracies of {self.n} samples")
        return self

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def error(self) -> float | None:
        """The standard error of the mean; of a single seed, nothing is known."""
        count = len(self.values)
        measurable = count > 1 and all(map(isfinite, self.values))
        return stdev(self.values) / sqrt(count) if measurable else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of one seed's accuracy, in percent, for its ``n`` samples.

        Over seeds, the standard error says more. That of a mean of accuracies of the same
        samples is no wider, since deviations of a mean are at most the mean deviation.

        >>> low, high = Measured(values=(90.0,), n=10).interval
        >>> round(low, 1), round(high, 1)
        (59.6, 98.2)
        """
        if not self.n or len(self.values) > 1:
            return None
        correct = round(self.mean * self.n / 100)
        low, high = Accuracy(correct=correct, n=self.n).interval
        return (100 * low, 100 * high)

    @property
    def apart(self) -> bool:
        """Whether the published number is outside of the 95% interval over our seeds.

        A standard error of the published number counts too. Below three seeds there is no
        such interval.
        """
        count = len(self.values)
        if self.published is None or self.error is None or count < FEWEST_SEEDS:
            return False
        error = sqrt(self.error**2 + (self.published.error or 0.0) ** 2)
        both = Estimate(self.mean - self.published.value, error, count - 1)
        return abs(both.mean) > both.half_width

    def __str__(self) -> str:
        beside = "" if self.error is None else f" ± {self.error:.2g}"
        return f"{self.mean:.4g}{beside}"


class ClaimResult(Record):
    """The verdict on a claim, with the numbers that decided it."""

    text: str
    """The claim."""
    verdict: Verdict
    """Whether it holds."""
    why: str
    """The numbers that decided."""
    applicable: bool = True
    """Whether the claim is about the scale of its record at all."""

    @property
    def mark(self) -> str:
        """A sign for the verdict."""
        return MARKS[self.verdict] if self.applicable else "–"

    @property
    def summary(self) -> str:
        """The verdict in words."""
        return self.verdict if self.applicable else "not judged at this scale"


class ImageVerdicts(Record):
    """Which test images stayed right under the condition of an accuracy."""

    of: str
    """A digest of which images they are; seeds of the same ones share it."""
    right: str
    """A bit an image, the first of a byte first, in base 64."""


class LedgerEntry(Record):
    """The numbers of a row's job under one seed, kept so that it need not run again."""

    row: str
    """The row of its numbers."""
    seed: int
    """The seed of the job."""
    fingerprint: str
    """A hash of what was trained and measured."""
    run: str
    """The run folder."""
    numbers: dict[str, float]
    """By column; not yet as ratios."""
    counts: dict[str, int] = {}
    """By column, for accuracies: how many samples are behind them."""
    images: dict[str, ImageVerdicts] = {}
    """By column, for accuracies under one condition: which images stayed right."""
    seconds: float
    """What the job took."""
    machine: str = ""
    """Where it ran."""
    panels: tuple[Panel, ...] = ()
    """What is drawn of it: of the first seed alone."""


class Reproduction(Record):
    """A reproduced table or figure."""

    LIMIT: ClassVar[int] = LARGE
    RENAMED: ClassVar[Mapping[str, str]] = {"told": "entries"}
    artefact: str = Field(pattern="^[^/]+/[^/]+$")
    """Paper and table or figure: ``xie2020/table1``."""
    title: str
    """What it shows."""
    scale: Scale
    """How much of the paper's setting was run."""
    seeds: int
    """Runs of each row."""
    columns: tuple[str, ...]
    """Their names, in order."""
    rows: dict[str, dict[str, Measured]]
    """By row and column."""
    claims: tuple[ClaimResult, ...] = ()
    """What the paper says of these numbers, tested on ours."""
    x: str = ""
    """Of a figure: what its columns are values of; rows are then lines."""
    y: str = ""
    """Of a figure: what its numbers are."""
    panels: tuple[Panel, ...] = ()
    """Of records that do not tell which job a panel is of."""
    runs: dict[str, tuple[str, ...]] = {}
    """The run folders behind each row, one per seed."""
    failed: dict[str, str] = {}
    """Runs that did not finish, and why."""
    machine: str = ""
    """Where the runs were made."""
    seconds: float = 0.0
    """What training and judging took, over all runs, wherever they were made."""
    entries: tuple[LedgerEntry, ...] = ()
    """The numbers of every job, also of rows and seeds that were left out this time."""
    defaults: dict[str, Any] = {}
    """The settings of a recipe that says nothing, when it was written."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        unknown = {column for row in self.rows.values() for column in row} - {*self.columns}
        if unknown:
            raise ValueError(
                f"rows have numbers of no column: {', '.join(sorted(unknown))}"
            )
        return self

    @property
    def n(self) -> int | None:
        """The number of samples behind each number, if it is known and the same for all."""
        counts = {number.n for row in self.rows.values() for number in row.values()}
        return counts.pop() if len(counts) == 1 else None

    @property
    def drawn(self) -> tuple[Panel, ...]:
        """All panels, titled by their rows."""
        titled = tuple(
            panel.model_copy(update={"title": f"{entry.row}: {panel.title}"})
            for entry in self.entries
            for panel in entry.panels
        )
        return self.panels + titled
