"""Training curves: loss and validation accuracies by epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan

from advnorm.records import Accuracy, Epoch, mark_of
from advnorm.report.charts import (
    Chart,
    ChartLine,
    ChartMark,
    count_axis,
    draw,
    percent_axis,
    value_axis,
)
from advnorm.report.figures import (
    MOST_RUNS,
    GroupStyles,
    SvgPanel,
    finite_or_nan,
    join_limited,
)
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.styles import OTHER_STYLE, GroupStyle


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
        "Validation accuracy, clean": [_fraction(e.validation_clean) for e in epochs],
        "Validation accuracy, under attack": [
            _fraction(e.validation_robust) for e in epochs
        ],
    }


def _curve(
    title: str, lines: Sequence[TrainingCurve], styles: GroupStyles, prefix: str
) -> SvgPanel:
    drawn = [
        ChartLine(
            tuple(zip(map(float, line.epochs), line.values, strict=True)),
            styles[line.label].colour,
            key=f"{line.label}\t{line.name}",
        )
        for line in lines
    ]
    marks = [mark for line in lines for mark in _marks(line, styles[line.label], title)]
    epochs = [epoch for line in lines for epoch in line.epochs]
    loss = "loss" in title
    y = (
        value_axis("loss", [value for line in lines for value in line.values])
        if loss
        else percent_axis("accuracy (%)")
    )
    ends = [
        f"{line.name} ends at {_value(line.values[-1], title)}{line.mark}" for line in lines
    ]
    x = count_axis("epoch", epochs)
    chart = Chart(
        title, join_limited(ends), x, y, tuple(drawn), tuple(marks), zoomable=True
    )
    return draw(chart, prefix)


def _marks(line: TrainingCurve, style: GroupStyle, title: str) -> Iterator[ChartMark]:
    """Yield a ring at the best checkpoint, a cross at each alarm, and where a line ends."""
    last = len(line.epochs) - 1
    alone = last == 0
    places = dict.fromkeys([*line.best, *line.alarms, last])
    for i in places:
        kinds = [
            name for name, at in (("best", line.best), ("alarm", line.alarms)) if i in at
        ]
        shape = "x" if "alarm" in kinds else "o" if kinds else style.marker
        said = [{"best": "best checkpoint", "alarm": "alarm"}[kind] for kind in kinds]
        value = _value(line.values[i], title)
        yield ChartMark(
            float(line.epochs[i]),
            line.values[i],
            f"{', '.join([line.name, *said])}, epoch {line.epochs[i]}: {value}{line.mark}",
            style,
            fill="none" if kinds else "full",
            key=f"{line.label}\t{line.name}",
            shape=shape if kinds or alone else "none",
        )


def _value(value: float, title: str) -> str:
    return f"{value:.3g}" if "loss" in title else f"{100 * value:.3g}%"


def _fraction(accuracy: Accuracy | None) -> float:
    return accuracy.fraction if accuracy else nan
