"""Attacks without gradients, added where gradients or scores are suspect."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.attacks import parse_attack
from advnorm.data import Batch
from advnorm.evaluation.checks.context import DECISION_ATTACK
from advnorm.evaluation.conditions import Condition, parse_conditions
from advnorm.evaluation.engine import PassTally, run_condition
from advnorm.evaluation.samples import Samples
from advnorm.evaluation.stages import KeepAdversarial
from advnorm.progress import Progress
from advnorm.records import Result, Verdicts
from advnorm.threat import Threat

_SCORES = "square-1000"


class ConditionResult(NamedTuple):
    """A condition, its result and its verdicts."""

    condition: Condition
    result: Result
    verdicts: Verdicts
    images: Tensor | None = None
    """One image a sample, where adversarial images are kept."""


class Broken(NamedTuple):
    """The wrong class of a sample, the attack that caused it, and the image."""

    prediction: int
    by: str
    image: Tensor | None


class EvaluationSetup(NamedTuple):
    """A model, its samples, and the settings of the attacks."""

    model: nn.Module
    samples: Samples
    batch_size: int
    seed: int
    progress: Progress | None
    keep: bool = False
    """Whether the adversarial images of conditions that search are kept."""
    tally: PassTally | None = None
    """Counts the passes of all searches."""


def run_and_keep(
    setup: EvaluationSetup, batches: Iterable[Batch], condition: Condition, *, total: int
) -> tuple[Verdicts, Tensor | None]:
    """Test samples under a condition; return their verdicts, and images if kept."""
    kept = KeepAdversarial()
    keep = setup.keep and condition.searches
    if keep:
        condition = replace(condition, stages=(*condition.stages, kept))
    verdicts = run_condition(
        setup.model,
        batches,
        condition,
        total=total,
        seed=setup.seed,
        progress=setup.progress,
        tally=setup.tally,
    )
    home = setup.samples.images.device
    return verdicts, torch.cat([part.to(home) for part in kept.parts]) if keep else None


def add_gradient_free(
    setup: EvaluationSetup, results: Sequence[ConditionResult]
) -> list[ConditionResult]:
    """Attack the remaining samples without gradients; successes count in all results.

    Square needs scores, and breaks most of what hides gradients alone; the attack on
    decisions comes after it. A result then is the worst case over its own attacks and
    these, and says so.
    """
    takes_scores = setup.samples.images.ndim == 4
    named = (_SCORES, DECISION_ATTACK) if takes_scores else (DECISION_ATTACK,)
    added: dict[Threat, list[str]] = {}
    broken: dict[Threat, dict[int, Broken]] = {}
    tallies: dict[Threat, PassTally] = {}
    for condition in (result.condition for result in results):
        threat = condition.threat
        if threat is not None and condition.searches and threat not in broken:
            alike = [r for r in results if r.condition.threat == threat]
            robust = {sample for r in alike for sample in _robust(r)}
            broken[threat], tallies[threat] = {}, PassTally()
            counted = setup._replace(tally=tallies[threat])
            added[threat] = [name for name in named if _searches(name, threat)]
            for attack in added[threat]:
                left = sorted(robust - broken[threat].keys())
                broken[threat] |= _attack(counted, attack, threat, left)
    return [
        _count_broken(r, broken[threat], " and ".join(added[threat]), tallies[threat])
        if r.condition.searches and (threat := r.condition.threat) and added[threat]
        else r
        for r in results
    ]


def _searches(attack: str, threat: Threat) -> bool:
    """Tell whether an attack searches balls of this norm."""
    return threat.name in parse_attack(attack).entry.norms


def _robust(result: ConditionResult) -> Iterator[int]:
    """Yield the samples that the attacks did not break, and no certificate covers."""
    verdicts = result.verdicts
    certificates = verdicts.certified or (False,) * len(verdicts.samples)
    if result.condition.searches:
        rows = zip(verdicts.samples, verdicts.robust, certificates, strict=True)
        yield from (sample for sample, robust, certified in rows if robust > certified)


def _attack(
    setup: EvaluationSetup, attack: str, threat: Threat, samples: Sequence[int]
) -> dict[int, Broken]:
    """Return the samples that an attack breaks."""
    (condition,) = parse_conditions([attack], [threat], threat.bounds)
    if not samples:
        return {}
    batches = _batches(setup, samples)
    verdicts, images = run_and_keep(setup, batches, condition, total=len(samples))
    rows = zip(verdicts.samples, verdicts.predictions, verdicts.robust, strict=True)
    return {
        sample: Broken(prediction, attack, None if images is None else images[row])
        for row, (sample, prediction, robust) in enumerate(rows)
        if not robust
    }


def _batches(setup: EvaluationSetup, samples: Sequence[int]) -> Iterator[Batch]:
    for batch in setup.samples.batches(setup.model, setup.batch_size):
        chosen = torch.tensor(samples, device=batch.samples.device)
        rows = torch.isin(batch.samples, chosen)
        if bool(rows.any()):
            yield Batch(*(tensor[rows] for tensor in batch))


def _count_broken(
    result: ConditionResult, broken: dict[int, Broken], added: str, tally: PassTally
) -> ConditionResult:
    """Count the samples that the added attacks broke in a result, and note it."""
    condition, record, verdicts, images = result
    rows = [i for i, s in enumerate(verdicts.samples) if s in broken and verdicts.robust[i]]
    predictions, robust = list(verdicts.predictions), list(verdicts.robust)
    by, curve = list(verdicts.by), list(verdicts.curve)
    for row in rows:
        predictions[row], by[row], image = broken[verdicts.samples[row]]
        if images is not None and image is not None:
            images[row] = image
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
        f"{added} count too, because gradients or scores are suspect; {condition.name} "
        f"alone leaves {record.accuracy}"
    )
    record = record.model_copy(
        update={
            "accuracy": verdicts.accuracy(),
            "curve": verdicts.accuracies(condition.counts),
            "notes": (*record.notes, note),
            "queries": record.queries + tally.queries,
            "gradients": record.gradients + tally.gradients,
        }
    )
    return ConditionResult(condition, record, verdicts, images)
