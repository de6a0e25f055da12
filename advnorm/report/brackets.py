"""The brackets of the condition ``radii``: per sample, as curves, and as medians."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from advnorm.records import Bracket, RadiiSummary
from advnorm.report.accuracy_curves import radius_axis
from advnorm.report.charts import Chart, ChartLine, draw, percent_axis
from advnorm.report.figures import MOST_PANELS, SvgPanel
from advnorm.report.groups import RunGroup
from advnorm.report.radius_chart import COLOURS
from advnorm.report.rows import condition_label

MOST_SAMPLES = 100
"""The most samples whose brackets are listed for each run."""


class SampleBracket(NamedTuple):
    """A sample and its two radii; the second is ``None`` where nothing broke it."""

    sample: int
    certified: float
    broken: float | None


class RunBrackets(NamedTuple):
    """The brackets of one run in one norm."""

    run: str
    title: str
    norm: str
    summary: RadiiSummary
    samples: tuple[SampleBracket, ...]


def run_brackets(groups: Sequence[RunGroup]) -> list[RunBrackets]:
    """Return the brackets of every run that has some."""
    return [
        RunBrackets(
            run.name,
            f"{run.name}, {condition_label(result)}",
            result.threat.norm,
            result.radii,
            tuple(
                SampleBracket(sample, *_checked(bracket))
                for sample, bracket in zip(verdicts.samples, verdicts.radii, strict=False)
            ),
        )
        for group in groups
        for run in group.members
        for result in run.results.values()
        if result.radii is not None and result.threat is not None
        for verdicts in [run.run.verdicts(result.key).first(result.accuracy.n)]
    ]


def bracket_panels(brackets: Sequence[RunBrackets], prefix: str) -> list[SvgPanel]:
    """Draw the shares that are certified and not broken at each radius, down to 0%."""
    drawn = [each for each in brackets if each.samples][:MOST_PANELS]
    return [_panel(each, f"{prefix}{number}") for number, each in enumerate(drawn)]


def _checked(bracket: Bracket) -> Bracket:
    """Return a bracket of finite numbers, whatever the file says."""
    certified, broken = bracket
    fits = broken is not None and isfinite(broken)
    return certified if isfinite(certified) else 0.0, broken if fits else None


def _panel(brackets: RunBrackets, prefix: str) -> SvgPanel:
    certified = [each.certified for each in brackets.samples]
    broken = [each.broken for each in brackets.samples if each.broken is not None]
    largest = max([*certified, *broken, 1e-9])
    n = len(brackets.samples)
    unbroken = n - len(broken)
    below = staircase(certified, beyond=0, n=n, largest=largest)
    above = staircase(broken, beyond=unbroken, n=n, largest=largest)
    lines = (
        ChartLine(below, COLOURS["certified"]),
        ChartLine(above, COLOURS["broken"]),
    )
    axis = radius_axis(brackets.norm, [largest * part / 8 for part in range(9)])
    text = f"{brackets.summary}, n={brackets.summary.n}"
    return draw(
        Chart(brackets.title, text, axis, percent_axis("samples (%)"), lines, ()), prefix
    )


def staircase(
    radii: Sequence[float], *, beyond: int, n: int, largest: float
) -> tuple[tuple[float, float], ...]:
    """Return the share of samples whose radius is larger, as a falling staircase."""
    ordered = sorted(radii)
    left = [(r, (len(ordered) - 1 - k + beyond) / n) for k, r in enumerate(ordered)]
    points = [(0.0, (len(ordered) + beyond) / n), *left]
    stairs = [points[0]]
    for (_, before), (radius, after) in pairwise(points):
        stairs += [(radius, before), (radius, after)]
    return (*stairs, (largest, stairs[-1][1]))
