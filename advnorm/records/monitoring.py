"""Measurements of single training steps, and the curves over training made of them."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from statistics import fmean, pstdev

from advnorm.records.base import Count, Record
from advnorm.records.diagnoses import Diagnosis, Panel, Series

ALPHA = 0.005
"""Weight of the newest value in the exponential average (sridhar2021, Fig. 1)."""
LARGEST = 1e100
"""Values above it, and those that are not finite, are left out of curves and means."""
_DOMAINS = ("clean", "adversarial")


class MonitoredStep(Record):
    """One line of ``monitor.jsonl``: a step (from 1) and its measurements."""

    step: Count
    """Its number."""
    epoch: float
    """Epochs completed when the step began."""
    numbers: dict[str, float]
    """Such as ``gradient_norm``, ``variance/clean``, ``wasserstein/adversarial``."""


def exponential_average(values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    r"""Return the exponentially weighted average of all values so far.

    .. math::
        a_t = \frac{\sum_{s \le t} (1 - \alpha)^{t - s} x_s}
        {\sum_{s \le t} (1 - \alpha)^{t - s}}

    The weights add up to 1 from the first value on, so that it does not linger.

    >>> exponential_average([1.0, 2.0, 2.0], 0.5)[:2]
    [1.0, 1.6666666666666667]
    """
    averages, total, weight = [], 0.0, 0.0
    for value in values:
        total = (1 - alpha) * total + value
        weight = (1 - alpha) * weight + 1.0
        averages.append(total / weight)
    return averages


def z_scores(values: Sequence[float]) -> list[float]:
    r"""Return :math:`(x - \mu) / \sigma` with the curve's own moments (sridhar2021, B.4).

    >>> z_scores([1.0, 3.0])
    [-1.0, 1.0]
    """
    mean, deviation = fmean(values), pstdev(values)
    return [(value - mean) / deviation if deviation else 0.0 for value in values]


def jumps(values: Sequence[float]) -> float:
    r"""Return the mean of :math:`|z_{t+1} - z_t|` over a curve's z-scores.

    0 for one value; about 1.13 where neighbours have nothing to do with each other.

    >>> jumps([1.0, 3.0, 1.0, 3.0])
    2.0
    """
    steps = [abs(after - before) for before, after in pairwise(z_scores(values))]
    return fmean(steps) if steps else 0.0


def over_training(lines: Sequence[MonitoredStep]) -> list[Diagnosis]:
    """Return one diagnosis for each question that a run monitored."""
    sizes = [_sizes(lines, *about) for about in _SIZES]
    return [d for d in (*sizes, _drift(lines), _distance(lines)) if d is not None]


_SIZES = (
    (
        "gradient_norm",
        "sridhar2021 Fig. 1a",
        "Gradient norm",
        "The lower and the steadier the norm, the smoother the loss that is trained on.",
    ),
    (
        "hessian",
        "sridhar2021 Fig. 1b",
        "Largest Hessian eigenvalue",
        "The larger the eigenvalue, the sharper the loss around the weights of that step.",
    ),
)


def _sizes(
    lines: Sequence[MonitoredStep], name: str, source: str, title: str, reading: str
) -> Diagnosis | None:
    """Return values that are compared by their size, with their exponential average."""
    steps, values = _curve(lines, name)
    if not steps:
        return None
    average = exponential_average(values)
    return Diagnosis(
        question=f"{name}_over_training",
        source=source,
        reading=f"{reading} Faint: each measurement; strong: the exponential average.",
        numbers={
            "mean": fmean(values),
            "end": fmean(_late(values)),
            "last average": average[-1],
            "most": max(values),
            **_by_tensor(_curve(lines, f"{name}/mean")[1]),
        },
        settings={"alpha": ALPHA, "measurements": len(values)},
        panels=(
            Panel(
                kind="lines",
                title=f"{title} over training",
                x="step",
                y=title[0].lower() + title[1:],
                log=min(values) > 0,
                series=(
                    Series(name="each", x=steps, y=values, faint=True),
                    Series(name="average", x=steps, y=tuple(average)),
                ),
            ),
        ),
    )


def _by_tensor(values: Sequence[float]) -> dict[str, float]:
    """Return the same of the mean over tensors, where steps showed it (the gradient's)."""
    if not values:
        return {}
    return {"mean of norms": fmean(values), "mean of norms, end": fmean(_late(values))}


def _drift(lines: Sequence[MonitoredStep]) -> Diagnosis | None:
    """Return the moments of the deepest feature map, each curve by its own z-scores."""
    panels = tuple(filter(None, (_scores(lines, what) for what in ("mean", "variance"))))
    if not panels:
        return None
    return Diagnosis(
        question="moments_over_training",
        source="sridhar2021 Fig. 1c, d",
        reading="Each curve is centred and scaled by its own moments: jumps between "
        "neighbouring steps are a shift that the last layers have to follow.",
        numbers={
            f"{name} of the {what}, {domain}": size(values)
            for name, size in (("relative spread", _spread), ("jumps", jumps))
            for what in ("mean", "variance")
            for domain in _DOMAINS
            if (values := _curve(lines, f"{what}/{domain}")[1])
        },
        settings={"measurements": len(lines)},
        panels=panels,
    )


def _late(values: Sequence[float]) -> Sequence[float]:
    """Return the last tenth of the values."""
    return values[-max(1, len(values) // 10) :]


def _scores(lines: Sequence[MonitoredStep], what: str) -> Panel | None:
    curves = {domain: _curve(lines, f"{what}/{domain}") for domain in _DOMAINS}
    series = tuple(
        Series(name=domain, x=steps, y=tuple(z_scores(values)))
        for domain, (steps, values) in curves.items()
        if steps
    )
    title = f"{what.capitalize()} of the deepest feature map"
    panel = Panel(kind="lines", title=title, x="step", y="z-score", series=series)
    return panel if series else None


def _spread(values: Sequence[float]) -> float:
    """Return the deviation over the size of the mean."""
    level = abs(fmean(values))
    return pstdev(values) / level if level else float("nan")


def _distance(lines: Sequence[MonitoredStep]) -> Diagnosis | None:
    """Return the distance of each domain's batches from the running statistics.

    ``end`` is the mean of the last tenth of the values, ``peak`` the largest of the second
    half, when the steps are those of a trained model.
    """
    series: list[Series] = []
    numbers: dict[str, float] = {}
    for domain in _DOMAINS:
        steps, values = _curve(lines, f"wasserstein/{domain}")
        if steps:
            series.append(Series(name=domain, x=steps, y=values))
            numbers[f"{domain}, mean"] = fmean(values)
            numbers[f"{domain}, end"] = fmean(_late(values))
            numbers[f"{domain}, peak"] = max(values[len(values) // 2 :])
    if not series:
        return None
    return Diagnosis(
        question="wasserstein_over_training",
        source="sitawarin2021 Fig. 4, Eqn. 7",
        reading="Near zero, training and tests normalize alike; a distance that stays "
        "large or jumps is a mismatch between them.",
        numbers=numbers,
        settings={"measurements": len(lines)},
        panels=(
            Panel(
                kind="lines",
                title="Batch to running statistics",
                x="step",
                y="squared distance",
                log=True,
                series=tuple(series),
            ),
        ),
    )


def _curve(
    lines: Sequence[MonitoredStep], name: str
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    points = [
        (line.step, line.numbers[name])
        for line in lines
        if abs(line.numbers.get(name, inf)) < LARGEST
    ]
    return tuple(step for step, _ in points), tuple(value for _, value in points)
