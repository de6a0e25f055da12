"""All verdicts of a page, packed: what ``samples.js`` decodes, filters and counts.

Samples of several runs are the same if their data set, split and labels agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advnorm.records import Result
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.packing import PackedNumbers, pack
from advnorm.report.rows import columns, condition_label, data_set
from advnorm.report.verdict_arrays import (
    BROKEN,
    NOT_TESTED,
    OUTCOMES,
    IntArray,
    LoadedVerdicts,
    VerdictArrays,
)

MOST_CHARACTERS = 1_200_000
"""The most characters of packed verdicts; records that do not fit are left out."""


@dataclass
class SampleSet:
    """The samples of one data set, and their labels."""

    name: str
    labels: dict[int, int] = field(default_factory=dict)

    def takes(self, name: str, verdicts: VerdictArrays) -> bool:
        """Add the samples of a record, if its labels agree; else return ``False``."""
        pairs = dict(zip(verdicts.samples.tolist(), verdicts.labels.tolist(), strict=True))
        if name != self.name or any(self.labels.get(s, k) != k for s, k in pairs.items()):
            return False
        self.labels |= pairs
        return True

    @property
    def ordered(self) -> IntArray:
        """The numbers of the samples, in ascending order."""
        return np.array(sorted(self.labels), dtype=np.int64)


@dataclass(frozen=True)
class SampleData:
    """The packed verdicts, and the sentences about what was left out."""

    values: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no verdict at all."""
        return not self.values["records"]


def sample_data(
    groups: Sequence[RunGroup], verdicts: LoadedVerdicts, headline: str | None
) -> SampleData:
    """Pack the verdicts of all runs: the headline's first, then in the table's order."""
    runs = [run for group in groups for run in group.members]
    keys = [key for key in columns(runs) if any((r.name, key) in verdicts for r in runs)]
    first: dict[str, Result] = {}
    for run in reversed(runs):
        first.update(run.results)
    results = {(run.name, key): r for run in runs for key, r in run.results.items()}
    order = sorted(keys, key=lambda key: first[key].key_without_branch != headline)
    sets: list[SampleSet] = []
    numbers = {
        pair: _set_number(sets, results[pair], verdicts[pair])
        for key in order
        for pair in ((run.name, key) for run in runs)
        if pair in verdicts
    }
    packed, left_out, size = [], 0, 0
    shown = [run for run in runs if any((run.name, key) in verdicts for key in keys)]
    for condition, key in enumerate(order):
        for place, run in enumerate(shown):
            if (run.name, key) in numbers:
                number = numbers[run.name, key]
                arrays = verdicts[run.name, key]
                record = _record(place, condition, number, sets[number], arrays)
                size += sum(len(part["data"]) for part in _parts(record))
                if size > MOST_CHARACTERS:
                    left_out += 1
                else:
                    packed.append(record)
    values = {
        "outcomes": OUTCOMES,
        "sets": [_packed_set(each) for each in sets],
        "runs": [
            {"name": run.name, "group": label} for run, label in _labelled(groups, shown)
        ],
        "conditions": [_condition(first[key]) for key in order],
        "records": packed,
    }
    return SampleData(values, _left_out(left_out, len(packed)))


def _labelled(
    groups: Sequence[RunGroup], shown: Sequence[ReportRun]
) -> list[tuple[ReportRun, str]]:
    labels = {run.name: group.label for group in groups for run in group.members}
    return [(run, labels[run.name]) for run in shown]


def _set_number(sets: list[SampleSet], result: Result, verdicts: VerdictArrays) -> int:
    data = data_set(result)
    name = data if result.split == "test" else f"{data}, {result.split}"
    for number, samples in enumerate(sets):
        if samples.takes(name, verdicts):
            return number
    sets.append(SampleSet(name))
    sets[-1].takes(name, verdicts)
    return len(sets) - 1


def _packed_set(samples: SampleSet) -> dict[str, Any]:
    ordered = samples.ordered
    labels = np.array([samples.labels[s] for s in ordered.tolist()], dtype=np.int64)
    whole = bool((ordered == np.arange(len(ordered))).all())
    return {
        "name": samples.name,
        "size": len(ordered),
        "samples": None if whole else pack(ordered),
        "labels": pack(labels),
    }


def _condition(result: Result) -> dict[str, Any]:
    threat = result.threat
    attacked = threat is not None and result.kind in ("attack", "suite", "curve")
    return {
        "key": result.key,
        "label": condition_label(result),
        "kind": result.kind,
        "family": f"{threat.norm} {result.branch}" if attacked and threat else "",
        "eps": threat.eps if threat else 0.0,
    }


def _record(
    run: int, condition: int, number: int, samples: SampleSet, verdicts: VerdictArrays
) -> dict[str, Any]:
    """Pack one record; a prediction is given where it is not the label."""
    ordered = samples.ordered
    places = np.searchsorted(ordered, verdicts.samples)
    order = np.argsort(places)
    outcomes = np.full(len(ordered), NOT_TESTED, dtype=np.int64)
    outcomes[places] = verdicts.outcomes
    wrong = order[(verdicts.predictions != verdicts.labels)[order]]
    broken = order[(verdicts.outcomes == BROKEN)[order]]
    flags = np.zeros(len(ordered), dtype=np.int64)
    flags[places[wrong]] = 1
    return {
        "run": run,
        "condition": condition,
        "set": number,
        "outcomes": pack(outcomes),
        "wrong": pack(flags),
        "predictions": pack(verdicts.predictions[wrong]),
        "attacks": list(verdicts.attacks),
        "brokenBy": pack(verdicts.broken_by[broken]),
    }


def _parts(record: Mapping[str, Any]) -> list[PackedNumbers]:
    return [record[name] for name in ("outcomes", "wrong", "predictions", "brokenBy")]


def _left_out(count: int, shown: int) -> tuple[str, ...]:
    if not count:
        return ()
    return (
        f"The verdicts of {shown} results are on this page; those of {count} more would "
        "make it too large, and are in the run folders.",
    )
