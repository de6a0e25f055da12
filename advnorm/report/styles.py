"""One colour and one marker a group, the same in every figure, table and legend."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from advnorm.numbers import parse_number
from advnorm.report.groups import RunGroup
from advnorm.report.rows import ReportRow, without_branch


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
"""For the groups beyond those that have a colour of their own."""


def assign(
    groups: Sequence[RunGroup], rows: Sequence[ReportRow], key: str | None
) -> dict[str, GroupStyle]:
    """Give the groups their styles, by label.

    Where there are more groups than styles, those with the highest accuracy under ``key``
    are chosen; the order stays that of the table.
    """
    labels = [group.label for group in groups]
    if len(labels) > len(STYLES):
        fractions = {row.label: _fraction(row, key) for row in rows}
        chosen = sorted(labels, key=lambda label: -fractions[label])[: len(STYLES)]
    else:
        chosen = labels
    shown = [label for label in labels if label in chosen]
    return dict.fromkeys(labels, OTHER_STYLE) | dict(zip(shown, STYLES, strict=False))


def _fraction(row: ReportRow, key: str | None) -> float:
    cells = [cell for name, cell in row.cells.items() if without_branch(name) == key]
    fractions = [cell.fraction for cell in cells if cell and not isnan(cell.fraction)]
    return max(fractions, default=-1.0)


def headline_key(groups: Sequence[RunGroup]) -> str | None:
    """Choose the attack that stands for robustness, where one figure needs just one.

    Of the attacks on images that most runs have, on their own data where there is one: the
    radius of the recipes where it was tried, else the largest; at that radius the attack
    that leaves the lowest mean accuracy. It is a result key without a branch: all branches
    of a mixture norm belong to it.
    """
    runs = [run for group in groups for run in group.members]
    found = [r for run in runs for r in run.results.values() if r.threat]
    attacked = [r for r in found if r.kind != "statistics"]
    results = [r for r in attacked if not r.other] or attacked
    if not results:
        return None
    fractions: dict[str, list[float]] = {}
    for result in results:
        fractions.setdefault(without_branch(result.key), []).append(
            result.accuracy.fraction
        )
    count = Counter(key for run in runs for key in {*map(without_branch, run.results)})
    trained = {_number(run.recipe.get("threat.eps", "")) for run in runs}
    last = {without_branch(result.key): result for result in results}

    def merit(key: str) -> tuple[int, bool, float, float]:
        threat = last[key].threat
        eps = threat.eps if threat else 0.0
        known = any(abs(eps - other) < 1e-6 for other in trained)
        return (count[key], known, eps, -sum(fractions[key]) / len(fractions[key]))

    return max(sorted(fractions), key=merit)


def _number(text: str) -> float:
    """Read ``0.1`` or ``8/255``; anything else is NaN, which equals no radius."""
    try:
        return parse_number(text)
    except ValueError:
        return float("nan")
