"""What training and evaluation took, for each group."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from advnorm.report.groups import ReportRun, RunGroup


@dataclass(frozen=True)
class GroupCost:
    """The mean over the runs of a group."""

    label: str
    epochs: float
    training: float
    """Seconds, without the time between epochs."""
    evaluation: float
    """Seconds, over all conditions."""
    machines: int
    """How many different environments the runs come from."""

    @property
    def epoch(self) -> float:
        """Seconds an epoch."""
        return self.training / self.epochs if self.epochs else 0.0


def training_seconds(run: ReportRun) -> float:
    """Return the time of a run's training; 0 if it was not trained."""
    seconds = [epoch.seconds for epoch in run.epochs]
    return sum(value for value in seconds if isfinite(value) and 0 <= value < 1e12)


def group_costs(groups: Sequence[RunGroup]) -> list[GroupCost]:
    """Return the cost of each group with a training or an evaluation."""
    return [
        GroupCost(
            group.label,
            fmean(len(run.epochs) for run in group.members),
            fmean(training_seconds(run) for run in group.members),
            fmean(_evaluation(run) for run in group.members),
            len({run.environment for run in group.members}),
        )
        for group in groups
        if any(run.epochs or run.results for run in group.members)
    ]


def _evaluation(run: ReportRun) -> float:
    seconds = [result.seconds for result in run.results.values()]
    return sum(value for value in seconds if isfinite(value) and 0 <= value < 1e12)


def duration(seconds: float) -> str:
    """Write a time as people do.

    >>> duration(0), duration(7.25), duration(90), duration(5400)
    ('–', '7.2 s', '1.5 min', '1.5 h')
    """
    if not seconds:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
