"""What a study leaves behind: ``study.json``."""

from statistics import mean
from typing import ClassVar

from pydantic import Field

from advnorm.records.base import LARGE, Record

LEVEL = 0.05
"""The error rate of a study's comparisons, all of them together."""


class StudyNumber(Record):
    """One number of a combination, over its seeds."""

    values: tuple[float, ...] = Field(min_length=1)
    """One a seed."""
    n: int | None = Field(default=None, ge=0)
    """Of accuracies in percent: how many samples are behind each."""
    low: float | None = None
    """The 95% interval of the mean: of Student's t over seeds, or of one seed's samples."""
    high: float | None = None
    """Its upper end."""

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.3g}"
        digits = 1 if self.n else 2
        return f"{self.mean:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


class StudyRow(Record):
    """One combination of settings."""

    settings: dict[str, str]
    """By key of the recipe."""
    seeds: tuple[int, ...]
    """Those that are done."""
    numbers: dict[str, StudyNumber]
    """By column."""
    runs: tuple[str, ...] = ()
    """The run folders, one per seed."""
    flags: tuple[str, ...] = ()
    """Reasons to doubt its accuracies."""
    note: str = ""
    """Why it has fewer seeds than others."""
    branch: str = ""
    """Of a mixture norm: the branch that was tested."""


class StudyComparison(Record):
    """Two combinations, compared by the seeds that both have."""

    first: str
    """The name of a row."""
    second: str
    """The name of another."""
    difference: float
    """Of the means: first minus second, in points."""
    low: float
    """The 95% interval of this difference alone."""
    high: float
    """Its upper end."""
    p: float
    """Of the paired t-test, corrected for all comparisons of the study (Holm, 1979)."""

    @property
    def decided(self) -> bool:
        """Whether the two differ at :data:`LEVEL`."""
        return self.p <= LEVEL


class Study(Record):
    """The answer of ``advnorm study``, and the numbers behind it."""

    LIMIT: ClassVar[int] = LARGE
    recipe: str
    """The name of the recipe that is varied."""
    over: dict[str, tuple[str, ...]]
    """The settings that are compared, by key."""
    seeds: int
    """Runs of each combination, at most."""
    epochs: int
    """Of each run."""
    headline: str
    """The column that decides: the worst case over all attacks, sample by sample."""
    threat: str
    """Norm and radius of the attacks."""
    evaluation: str = ""
    """How runs are tested: the recipe's evaluation as JSON, without defaults."""
    columns: tuple[str, ...]
    """The names of the numbers, in order."""
    rows: dict[str, StudyRow]
    """The combinations by name."""
    skipped: dict[str, str] = {}
    """Combinations that make no sense, and why."""
    dropped: dict[str, str] = {}
    """Combinations that the budget stopped, and why."""
    failed: dict[str, str] = {}
    """Combinations whose runs did not finish, and why."""
    comparisons: tuple[StudyComparison, ...] = ()
    """Every two rows with enough seeds, in the column that decides."""
    pareto: tuple[str, ...] = ()
    """Rows that no other beats both in clean and in robust accuracy."""
    choice: str = ""
    """The name of the row to choose."""
    answer: tuple[str, ...] = ()
    """What to choose, and how sure that is: two sentences."""
    machine: str = ""
    """Where the runs were made."""
    seconds: float = 0.0
    """What training and evaluation took, over all runs."""
