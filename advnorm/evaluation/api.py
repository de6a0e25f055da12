"""Anybody's model in three lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, SupportsFloat

import torch
from torch import Tensor, nn

from advnorm.evaluation.certificates import refuse_broken_certificates
from advnorm.evaluation.checks.context import FEW
from advnorm.evaluation.conditions import Condition, certify_first, parse_conditions
from advnorm.evaluation.engine import run_condition
from advnorm.evaluation.gradient_free import (
    ConditionResult,
    EvaluationSetup,
    add_gradient_free,
)
from advnorm.evaluation.inputs import check_mode
from advnorm.evaluation.samples import Samples, by_itself, samples_of, usable
from advnorm.evaluation.screening import Suspicion, contradictions, first_answers
from advnorm.norms import active_branch
from advnorm.progress import Progress
from advnorm.records import Result, Verdicts
from advnorm.threat import THREATS, Bounds, Threat


@dataclass(frozen=True)
class Evaluation:
    """Results by key, each with its verdicts a sample."""

    results: tuple[Result, ...]
    verdicts: dict[str, Verdicts]

    def __str__(self) -> str:
        width = max(len(result.key) for result in self.results)
        return "\n".join(
            f"{r.key:<{width}}  {r.accuracy}{_beside(r)}" for r in self.results
        )


def evaluate(  # noqa: PLR0913 (one flat call, for newcomers)
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: SupportsFloat | Sequence[SupportsFloat],
    norm: str = "linf",
    attacks: Sequence[str] = ("clean", "fgsm", "pgd-50"),
    bounds: Bounds = (0.0, 1.0),
    certify: str = "none",
    batch_size: int = 250,
    seed: int = 0,
    train_mode: Literal["set", "refuse"] = "set",
    progress: Progress | None = None,
) -> Evaluation:
    """Attack ``model`` and return its accuracies, with intervals and verdicts a sample.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> images, labels = torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.long)
    >>> [r.key for r in evaluate(model, images, labels, eps=8 / 255).results]
    ['clean', 'fgsm_linf_0.03137', 'pgd-50_linf_0.03137']

    Args:
        model: Maps images in ``bounds`` to logits; standardization is inside the model. A
            model in half precision is attacked with images and steps in float32. One with
            mixture norms answers with, and is attacked on, the branch of its present
            route (by default the adversarial one), which the results name.
        images: Floats in ``bounds``, shape ``(n, ...)``.
        labels: Class indices, integers of any size, shape ``(n,)``.
        eps: The radius, or a list of radii for the accuracy curve; 0 is no attack.
        norm: ``"linf"`` or ``"l2"``.
        attacks: Names of cells, such as ``"pgd-50x5"`` (steps x restarts).
        bounds: The smallest and largest value of a valid image.
        certify: ``"ibp"``, ``"crown-ibp"`` or ``"crown"``: what it covers is not attacked.
        batch_size: Samples attacked together; no verdict depends on it.
        seed: Decides every random start.
        train_mode: What to do about a model in train mode: set it to evaluation and put it
            back afterwards, or refuse it.
        progress: Where to report; by default nowhere.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is a number of samples from 1, not {batch_size}")
    if train_mode not in ("set", "refuse"):
        raise ValueError(f"train_mode is 'set' or 'refuse', not {train_mode!r}")
    if train_mode == "refuse":
        check_mode(usable(model))
    threats = _threats(norm, eps, bounds)
    samples = samples_of(images, labels, bounds)
    shape = samples.images.shape[1:]
    conditions = certify_first(_conditions(attacks, threats, bounds, shape), certify)
    with by_itself():
        model = usable(model)
        classes, suspicion = _screen(model, samples, conditions, threats)
        setup = EvaluationSetup(model, samples, batch_size, seed, progress)
        tested = [_run(setup, condition, classes) for condition in conditions]
        flags = contradictions(conditions, [each.verdicts for each in tested])
        if suspicion and (suspicion.masked or any(flags)):
            tested = add_gradient_free(setup, tested)
        general = suspicion.flags() if suspicion else ()
    results = [
        result.model_copy(update={"flags": (*general, *own) if condition.searches else ()})
        for (condition, result, _), own in zip(tested, flags, strict=True)
    ]
    verdicts = [each.verdicts for each in tested]
    refuse_broken_certificates(zip(results, verdicts, strict=True))
    keys = [result.key for result in results]
    return Evaluation(tuple(results), dict(zip(keys, verdicts, strict=True)))


def _screen(
    model: nn.Module,
    samples: Samples,
    conditions: Sequence[Condition],
    threats: Sequence[Threat],
) -> tuple[int, Suspicion | None]:
    """Refuse what cannot be attacked; return the classes, and what a few passes show."""
    samples.check_images(threats)
    threat = next((c.threat for c in conditions if c.searches), None)
    if threat is None:
        return samples.check(model, threats), None
    history = first_answers(model, samples, threat)
    classes = samples.check(model, threats)
    suspicion = Suspicion(model, next(samples.batches(model, FEW)), threat, history)
    suspicion.refuse_blind(conditions)
    return classes, suspicion


def _beside(result: Result) -> str:
    """Write what must not be missed beside a number: doubts, then notes."""
    return "".join(f"  ! {text}" for text in (*result.flags, *result.notes))


def _threats(
    norm: str, eps: SupportsFloat | Sequence[SupportsFloat], bounds: Bounds
) -> list[Threat]:
    if norm not in THREATS:
        raise ValueError(f"no norm {norm!r}; there are: {', '.join(THREATS)}")
    try:
        if torch.as_tensor(eps).dtype == torch.bool:
            raise ValueError
        radii = torch.as_tensor(eps, dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"eps is a number, or a list of numbers, not {eps!r}") from None
    if not radii:
        raise ValueError("eps is empty: give at least one radius, such as 8/255")
    return [THREATS[norm](radius, bounds) for radius in radii]


def _conditions(
    attacks: Sequence[str],
    threats: Sequence[Threat],
    bounds: Bounds,
    shape: Sequence[int],
) -> list[Condition]:
    if not attacks:
        raise ValueError("attacks is empty: name at least one, such as 'pgd-50'")
    return parse_conditions(attacks, threats, bounds, shape=shape)


def _run(setup: EvaluationSetup, condition: Condition, classes: int) -> ConditionResult:
    start, model = perf_counter(), setup.model
    verdicts = run_condition(
        model,
        setup.samples.batches(model, setup.batch_size),
        condition,
        total=len(setup.samples.images),
        seed=setup.seed,
        progress=setup.progress,
    )
    result = Result(
        **condition.result_fields(verdicts, classes),
        data="given",
        weights="given",
        branch=active_branch(model),
        seed=setup.seed,
        seconds=perf_counter() - start,
    )
    return ConditionResult(condition, result, verdicts)
