"""The accuracy over all attacks together: a sample is robust only if it is under each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from advnorm.records import Result, ThreatRecord
from advnorm.report.completion_marks import unfinished_runs
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.rows import TableCell, data_set, threat_label
from advnorm.report.verdict_arrays import LoadedVerdicts

ATTACKED = ("attack", "suite", "curve")
"""The kinds of conditions with an adversary that changes images."""


class WorstCase(NamedTuple):
    """The column of the worst case: its threat, and a cell for each group and run."""

    threat: str
    attacks: str
    """Which attacks it is over, if all runs have the same; else the cells say it."""
    groups: dict[str, TableCell]
    """By label."""
    runs: dict[str, TableCell]
    """By run name."""


def worst_case(
    groups: Sequence[RunGroup], verdicts: LoadedVerdicts, headline: Result | None
) -> WorstCase | None:
    """Return the worst case under the headline's threat; ``None`` if no run has one."""
    if headline is None or headline.threat is None:
        return None
    by_run = {
        run.name: cell
        for group in groups
        for run in group.members
        if (cell := _run_cell(run, verdicts, headline, headline.threat)) is not None
    }
    notes = {cell.notes for cell in by_run.values()}
    attacks = ""
    if len(notes) == 1:
        ((attacks,),) = notes
        by_run = {name: replace(cell, notes=()) for name, cell in by_run.items()}
    else:
        by_run = {
            name: replace(cell, notes=tuple(f"worst case over {n}" for n in cell.notes))
            for name, cell in by_run.items()
        }
    by_group = {
        group.label: _mean([by_run[r.name] for r in group.one_per_seed if r.name in by_run])
        for group in groups
        if any(run.name in by_run for run in group.one_per_seed)
    }
    if not by_run:
        return None
    return WorstCase(threat_label(headline.threat), attacks, by_group, by_run)


def _run_cell(
    run: ReportRun, verdicts: LoadedVerdicts, headline: Result, threat: ThreatRecord
) -> TableCell | None:
    results = [
        result
        for result in run.results.values()
        if result.kind in ATTACKED
        and result.threat == threat
        and (data_set(result), result.other) == (data_set(headline), headline.other)
        and (run.name, result.key) in verdicts
    ]
    branches = {result.branch for result in results}
    branch = "worst" if "worst" in branches else min(branches, key=str, default=None)
    chosen = [result for result in results if result.branch == branch]
    if not chosen:
        return None
    arrays = [verdicts[run.name, result.key] for result in chosen]
    shared = set.intersection(*(set(each.samples.tolist()) for each in arrays))
    robust = set(shared)
    for each in arrays:
        robust &= set(each.samples[each.correct].tolist())
    names = ", ".join(result.condition for result in chosen)
    where = f", {branch} branch" if branch else ""
    return TableCell(
        fractions=(len(robust) / len(shared) if shared else float("nan"),),
        n=len(shared),
        flags=tuple(dict.fromkeys(flag for result in chosen for flag in result.flags)),
        notes=(f"{names}{where}",),
        unfinished=unfinished_runs(chosen[:1]),
    )


def _mean(cells: Sequence[TableCell]) -> TableCell:
    """Return the cell over seeds of the cells of single runs."""
    return TableCell(
        fractions=tuple(fraction for cell in cells for fraction in cell.fractions),
        n=int(np.min([cell.n for cell in cells])),
        flags=tuple(dict.fromkeys(flag for cell in cells for flag in cell.flags)),
        notes=tuple(dict.fromkeys(note for cell in cells for note in cell.notes)),
        unfinished=tuple(dict.fromkeys(text for c in cells for text in c.unfinished)),
    )
