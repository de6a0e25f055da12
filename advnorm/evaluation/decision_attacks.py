"""Attacks without gradients, added where gradients or scores are suspect."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from advnorm.data import Batch
from advnorm.evaluation.checks.context import DECISIONS
from advnorm.evaluation.conditions import Cell, cells
from advnorm.evaluation.engine import judge
from advnorm.evaluation.samples import Samples
from advnorm.progress import Progress
from advnorm.records import Result, Verdicts
from advnorm.threat import Threat

_SCORES = "square-1000"


class Outcome(NamedTuple):
    """A condition, its result and its verdicts."""

    cell: Cell
    result: Result
    verdicts: Verdicts


class Broken(NamedTuple):
    """What a sample is taken for, and the attack that did it."""

    prediction: int
    by: str


class Attempt(NamedTuple):
    """A model and samples, and how they are attacked."""

    model: nn.Module
    samples: Samples
    batch_size: int
    seed: int
    progress: Progress | None


def add_decisions(attempt: Attempt, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Attack without gradients what other attacks left, and let it count in their results.

    Square needs scores, and breaks most of what hides gradients alone; the attack on
    decisions comes after it. A result then is the worst case over its own attacks and
    these, and says so.
    """
    added = (_SCORES, DECISIONS) if attempt.samples.images.ndim == 4 else (DECISIONS,)
    broken: dict[Threat, dict[int, Broken]] = {}
    for outcome in outcomes:
        threat = outcome.cell.threat
        if threat is not None and outcome.cell.searches and threat not in broken:
            left = {s for o in outcomes if o.cell.threat == threat for s in _left(o)}
            broken[threat] = {}
            for attack in added:
                rest = sorted(left - broken[threat].keys())
                broken[threat] |= _broken(attempt, attack, threat, rest)
    return [
        _lowered(o, broken[o.cell.threat], " and ".join(added))
        if o.cell.searches and o.cell.threat
        else o
        for o in outcomes
    ]


def _left(outcome: Outcome) -> Iterator[int]:
    """Yield the samples that an attack left, and no certificate covers."""
    verdicts = outcome.verdicts
    sure = verdicts.certified or (False,) * len(verdicts.samples)
    if outcome.cell.searches:
        rows = zip(verdicts.samples, verdicts.robust, sure, strict=True)
        yield from (sample for sample, robust, certified in rows if robust > certified)


def _broken(
    attempt: Attempt, attack: str, threat: Threat, left: Sequence[int]
) -> dict[int, Broken]:
    """Return the samples that an attack breaks."""
    (cell,) = cells([attack], [threat], threat.bounds)
    verdicts = judge(
        attempt.model,
        _rows(attempt, left),
        cell,
        total=len(left),
        seed=attempt.seed,
        progress=attempt.progress,
    )
    rows = zip(verdicts.samples, verdicts.predictions, verdicts.robust, strict=True)
    return {s: Broken(guess, attack) for s, guess, robust in rows if not robust}


def _rows(attempt: Attempt, left: Sequence[int]) -> Iterator[Batch]:
    for batch in attempt.samples.batches(attempt.model, attempt.batch_size):
        wanted = torch.isin(batch.samples, torch.tensor(left, device=batch.samples.device))
        if bool(wanted.any()):
            yield Batch(*(tensor[wanted] for tensor in batch))


def _lowered(outcome: Outcome, broken: dict[int, Broken], added: str) -> Outcome:
    """Count the samples that the added attacks broke in a result, and note it."""
    cell, result, verdicts = outcome
    rows = [i for i, s in enumerate(verdicts.samples) if s in broken and verdicts.robust[i]]
    predictions, robust = list(verdicts.predictions), list(verdicts.robust)
    by, curve = list(verdicts.by), list(verdicts.curve)
    for row in rows:
        predictions[row], by[row] = broken[verdicts.samples[row]]
        robust[row] = False
        if curve:
            curve[row] = (False,) * len(curve[row])
    verdicts = verdicts.model_copy(
        update={
            "predictions": tuple(predictions),
            "robust": tuple(robust),
            "by": tuple(by),
            "curve": tuple(curve),
        }
    )
    note = (
        f"{added} count too, because gradients or scores are suspect; {cell.name} alone "
        f"leaves {result.accuracy}"
    )
    result = result.model_copy(
        update={
            "accuracy": verdicts.accuracy(),
            "curve": verdicts.accuracies(cell.counts),
            "notes": (*result.notes, note),
        }
    )
    return Outcome(cell, result, verdicts)
