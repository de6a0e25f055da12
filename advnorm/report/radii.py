"""Accuracy against the radius: a panel an attack, norm and data set."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import NamedTuple

from matplotlib import rc_context

from advnorm.records import result_key
from advnorm.report.figures import (
    BRANCH_LINE_STYLES,
    MOST_PANELS,
    RC_PARAMS,
    GroupStyles,
    SvgPanel,
    accuracy_text,
    draw_accuracies,
    join_limited,
    new_axes,
    to_svg,
    with_branch,
)
from advnorm.report.groups import RunGroup
from advnorm.report.rows import ReportRow, TableCell, eps_label, norm_label
from advnorm.report.styles import OTHER_STYLE

Family = dict[str | None, dict[float, str]]
"""The result keys of one panel: by branch of a mixture norm, then by radius."""


class RadiusPanelKey(NamedTuple):
    """What a panel of accuracies against the radius is about."""

    attack: str
    norm: str
    data: str
    """Empty for the runs' own."""


def radius_keys(groups: Sequence[RunGroup]) -> dict[RadiusPanelKey, Family]:
    """Return the result keys for each attack, norm and data set that any run has."""
    found: dict[RadiusPanelKey, Family] = {}
    for group in groups:
        for run in group.members:
            for key, result in run.results.items():
                if result.threat:
                    data = result.data if result.other else ""
                    named = RadiusPanelKey(result.condition, result.threat.norm, data)
                    family = found.setdefault(named, {}).setdefault(result.branch, {})
                    family[result.threat.eps] = key
    return dict(sorted(found.items(), key=lambda item: (item[0].data, *item[0])))


def radius_panels(
    found: Mapping[RadiusPanelKey, Family],
    rows: Sequence[ReportRow],
    styles: GroupStyles,
    prefix: str,
) -> list[SvgPanel]:
    """Draw accuracy against eps: a panel an attack and norm, with 95% bands.

    A line is a group; a mixture norm has one for each branch.
    """
    with rc_context(RC_PARAMS):
        return [
            _radius(named, family, rows, styles, f"{prefix}{number}")
            for number, (named, family) in enumerate(list(found.items())[:MOST_PANELS])
        ]


def _radius(
    named: RadiusPanelKey,
    family: Family,
    rows: Sequence[ReportRow],
    styles: GroupStyles,
    prefix: str,
) -> SvgPanel:
    axes = new_axes(f"radius eps ({norm_label(named.norm)})", "accuracy (%)")
    told = []
    for row in rows:
        for branch, keys in family.items():
            clean = result_key("clean", None, branch, named.data or None)
            known = _by_radius(row, {0.0: clean, **keys})
            if styles[row.label] is not OTHER_STYLE and known:
                draw_accuracies(axes, known, styles[row.label], BRANCH_LINE_STYLES[branch])
                shown = (f"{accuracy_text(c)} at {eps_label(e)}" for e, c in known.items())
                told.append(f"{with_branch(row.label, branch)}: " + ", ".join(shown))
    axes.set_ylim(0, 100)
    ticks = [0.0, *sorted({eps for keys in family.values() for eps in keys})]
    if len(ticks) <= 6:
        axes.set_xticks(ticks, [eps_label(eps) for eps in ticks])
    title = f"{named.attack}, {norm_label(named.norm)}"
    title += f", on {named.data}" if named.data else ""
    return SvgPanel(title, join_limited(told), to_svg(axes, prefix))


def _by_radius(row: ReportRow, keys: Mapping[float, str]) -> dict[float, TableCell]:
    cells = {eps: row.cells.get(key) for eps, key in sorted(keys.items())}
    return {eps: cell for eps, cell in cells.items() if cell and not isnan(cell.fraction)}
