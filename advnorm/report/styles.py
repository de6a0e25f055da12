"""One colour and one marker for each group, in every figure, table and legend."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean

from advnorm.numbers import parse_number
from advnorm.records import Result
from advnorm.report.groups import RunGroup
from advnorm.report.rows import ReportRow


@dataclass(frozen=True)
class GroupStyle:
    """How a group is drawn; ``glyph`` is the marker in text."""

    colour: str
    marker: str
    glyph: str


_COLOURS = (
    "#3b78c2",
    "#d9730d",
    "#2e9152",
    "#b8479b",
    "#cf3f3f",
    "#1a96a6",
    "#94683a",
    "#7a63c9",
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_GLYPHS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★")
STYLES = tuple(map(GroupStyle, _COLOURS, _MARKERS, _GLYPHS))
OTHER_STYLE = GroupStyle("#8a8a8a", ".", "·")
"""For further groups, which have no colour of their own."""


def assign_styles(
    groups: Sequence[RunGroup], rows: Sequence[ReportRow], key: str | None
) -> dict[str, GroupStyle]:
    """Return the style of each group, by label.

    If there are more groups than styles, those with the highest accuracy under ``key`` are
    chosen; the order stays that of the table.
    """
    labels = chosen = [group.label for group in groups]
    if len(labels) > len(STYLES):
        accuracy = {g.label: _best(g, r, key) for g, r in zip(groups, rows, strict=True)}
        chosen = sorted(labels, key=lambda label: -accuracy[label])[: len(STYLES)]
    shown = [label for label in labels if label in chosen]
    return dict.fromkeys(labels, OTHER_STYLE) | dict(zip(shown, STYLES, strict=False))


def _best(group: RunGroup, row: ReportRow, key: str | None) -> float:
    """Return the highest accuracy of a group under ``key``, over branches."""
    results = [result for run in group.members for result in run.results.values()]
    cells = [row.cells[r.key] for r in results if r.key_without_branch == key]
    fractions = [cell.fraction for cell in cells if cell and not isnan(cell.fraction)]
    return max(fractions, default=-1.0)


def headline_key(groups: Sequence[RunGroup]) -> str | None:
    """Choose the attack whose accuracy is called robust, where a figure needs just one.

    Candidates are the attacks on images that most runs have, on the runs' own data if there
    are such. Chosen is the radius of the recipes if it was tried, else the largest; at that
    radius, the attack with the lowest mean accuracy. It is a result key without a branch:
    all branches of a mixture norm belong to it.
    """
    runs = [run for group in groups for run in group.members]
    every = [r for run in runs for r in run.results.values()]
    attacked = [r for r in every if r.threat and r.kind != "statistics"]
    results = [r for r in attacked if not r.other] or attacked
    if not results:
        return None
    by_key: dict[str, list[Result]] = {}
    for result in results:
        by_key.setdefault(result.key_without_branch, []).append(result)
    runs_with = Counter(
        key
        for run in runs
        for key in {result.key_without_branch for result in run.results.values()}
    )
    trained = {_number(run.recipe.get("threat.eps", "")) for run in runs}

    def merit(key: str) -> tuple[int, bool, float, float]:
        threat = by_key[key][-1].threat
        eps = threat.eps if threat else 0.0
        in_recipe = any(abs(eps - radius) < 1e-6 for radius in trained)
        mean = fmean(result.accuracy.fraction for result in by_key[key])
        return (runs_with[key], in_recipe, eps, -mean)

    return max(sorted(by_key), key=merit)


def _number(text: str) -> float:
    """Read ``0.1`` or ``8/255``; anything else is NaN, which equals no radius."""
    try:
        return parse_number(text)
    except ValueError:
        return float("nan")
