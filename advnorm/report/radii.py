"""Accuracy against the radius: a panel an attack, norm and data set."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import NamedTuple

from matplotlib import rc_context

from advnorm.records import result_key
from advnorm.report.figures import (
    LINES,
    MOST_PANELS,
    STYLE,
    Looks,
    Panel,
    branched,
    draw,
    listed,
    plot,
    svg_of,
    told_of,
)
from advnorm.report.groups import Group
from advnorm.report.rows import Cell, Row, eps_label, norm_label
from advnorm.report.styles import OTHER

Family = dict[str | None, dict[float, str]]
"""The result keys of one panel: by branch of a mixture norm, then by radius."""


class Named(NamedTuple):
    """What a panel of accuracies against the radius is about."""

    attack: str
    norm: str
    data: str
    """Empty for the runs' own."""


def families(groups: Sequence[Group]) -> dict[Named, Family]:
    """Return the result keys for each attack, norm and data set that any run has."""
    found: dict[Named, Family] = {}
    for group in groups:
        for run in group.members:
            for key, result in run.results.items():
                if result.threat:
                    data = result.data if result.other else ""
                    named = Named(result.attack, result.threat.norm, data)
                    family = found.setdefault(named, {}).setdefault(result.branch, {})
                    family[result.threat.eps] = key
    return dict(sorted(found.items(), key=lambda item: (item[0].data, *item[0])))


def radii(
    found: Mapping[Named, Family],
    rows: Sequence[Row],
    looks: Looks,
    prefix: str,
) -> list[Panel]:
    """Draw accuracy against eps: a panel an attack and norm, with 95% bands.

    A line is a group; a mixture norm has one for each branch.
    """
    with rc_context(STYLE):
        return [
            _radius(named, family, rows, looks, f"{prefix}{number}")
            for number, (named, family) in enumerate(list(found.items())[:MOST_PANELS])
        ]


def _radius(
    named: Named,
    family: Family,
    rows: Sequence[Row],
    looks: Looks,
    prefix: str,
) -> Panel:
    axes = plot(f"radius eps ({norm_label(named.norm)})", "accuracy (%)")
    told = []
    for row in rows:
        for branch, keys in family.items():
            clean = result_key("clean", None, branch, named.data or None)
            known = _by_radius(row, {0.0: clean, **keys})
            if looks[row.label] is not OTHER and known:
                draw(axes, known, looks[row.label], LINES[branch])
                shown = (f"{told_of(c)} at {eps_label(e)}" for e, c in known.items())
                told.append(f"{branched(row.label, branch)}: " + ", ".join(shown))
    axes.set_ylim(0, 100)
    ticks = [0.0, *sorted({eps for keys in family.values() for eps in keys})]
    if len(ticks) <= 6:
        axes.set_xticks(ticks, [eps_label(eps) for eps in ticks])
    title = f"{named.attack}, {norm_label(named.norm)}"
    title += f", on {named.data}" if named.data else ""
    return Panel(title, listed(told), svg_of(axes, prefix))


def _by_radius(row: Row, keys: Mapping[float, str]) -> dict[float, Cell]:
    cells = {eps: row.cells.get(key) for eps, key in sorted(keys.items())}
    return {eps: cell for eps, cell in cells.items() if cell and not isnan(cell.fraction)}
