"""Training curves: loss and validation accuracies by epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan

from matplotlib import rc_context
from matplotlib.ticker import MaxNLocator

from advnorm.records import Accuracy, Epoch, mark_of
from advnorm.report.figures import (
    MOST_RUNS,
    RC_PARAMS,
    GroupStyles,
    SvgPanel,
    finite_or_nan,
    join_limited,
    new_axes,
    to_svg,
)
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.styles import OTHER_STYLE


def training_panels(
    groups: Sequence[RunGroup], styles: GroupStyles, prefix: str
) -> list[SvgPanel]:
    """Draw loss and validation accuracies by epoch: one line a run.

    A ring is the best checkpoint, a cross an epoch with an alarm. A measure that no run has
    recorded is left out.
    """
    series: dict[str, list[TrainingCurve]] = {}
    for label, run in _limited(groups, styles):
        for title, values in _measures(run.epochs).items():
            if any(map(isfinite, values)):
                epochs = [epoch.epoch for epoch in run.epochs]
                best = [i for i, epoch in enumerate(run.epochs) if epoch.best][-1:]
                alarms = [i for i, epoch in enumerate(run.epochs) if epoch.alarms]
                mark = mark_of(run.training)
                line = TrainingCurve(label, run.name, epochs, values, best, alarms, mark)
                series.setdefault(title, []).append(line)
    return [
        _curve(title, lines, styles, f"{prefix}{number}")
        for number, (title, lines) in enumerate(series.items())
    ]


@dataclass(frozen=True)
class TrainingCurve:
    """One line of a training curve."""

    label: str
    name: str
    epochs: list[int]
    values: list[float]
    best: list[int]
    alarms: list[int]
    mark: str
    """The progress of training, if it is not finished."""


def _limited(
    groups: Sequence[RunGroup], styles: GroupStyles
) -> list[tuple[str, ReportRun]]:
    runs = [
        (g.label, run)
        for g in groups
        if styles[g.label] is not OTHER_STYLE
        for run in g.members
    ]
    return runs[:MOST_RUNS]


def _measures(epochs: Sequence[Epoch]) -> dict[str, list[float]]:
    return {
        "Training loss": [finite_or_nan(e.loss) for e in epochs],
        "Validation accuracy, clean": [_percent(e.validation_clean) for e in epochs],
        "Validation accuracy, under attack": [
            _percent(e.validation_robust) for e in epochs
        ],
    }


def _curve(
    title: str, lines: Sequence[TrainingCurve], styles: GroupStyles, prefix: str
) -> SvgPanel:
    with rc_context(RC_PARAMS):
        axes = new_axes("epoch", "loss" if "loss" in title else "accuracy (%)")
        for line in lines:
            style = styles[line.label]
            alone = len(line.epochs) == 1
            axes.plot(
                line.epochs,
                line.values,
                color=style.colour,
                marker=style.marker if alone else "none",
                alpha=0.9,
            )
            for where, marker, size in ((line.best, "o", 6.0), (line.alarms, "x", 6.0)):
                axes.plot(
                    [line.epochs[i] for i in where],
                    [line.values[i] for i in where],
                    linestyle="none",
                    marker=marker,
                    markersize=size,
                    markerfacecolor="none",
                    markeredgecolor=style.colour,
                )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        svg = to_svg(axes, prefix)
    ends = [f"{line.name} ends at {line.values[-1]:.3g}{line.mark}" for line in lines]
    return SvgPanel(title, join_limited(ends), svg)


def _percent(accuracy: Accuracy | None) -> float:
    return 100 * accuracy.fraction if accuracy else nan
