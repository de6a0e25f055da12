"""``advnorm.evaluate``: the accuracies of any model under attacks and certificates."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

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
from advnorm.evaluation.inputs import check_mode, threats_of
from advnorm.evaluation.samples import (
    Samples,
    as_module,
    as_samples,
    isolated,
)
from advnorm.evaluation.screening import Screening, contradictions, first_answers
from advnorm.norms import active_branch
from advnorm.progress import Progress
from advnorm.records import Result, Verdicts
from advnorm.threat import Threat


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
    threat: Threat | Sequence[Threat],
    *,
    conditions: Sequence[str] = ("clean", "fgsm", "pgd-50"),
    certificate: str = "none",
    batch_size: int = 250,
    seed: int = 0,
    train_mode: Literal["set", "refuse"] = "set",
    progress: Progress | None = None,
) -> Evaluation:
    """Test ``model`` under each condition; return accuracies and a verdict per sample.

    >>> import torch
    >>> from advnorm import Linf
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> images, labels = torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.long)
    >>> result = evaluate(model, images, labels, Linf(8 / 255))
    >>> [r.key for r in result.results]
    ['clean', 'fgsm_linf_0.03137', 'pgd-50_linf_0.03137']

    Args:
        model: Maps images in the bounds to logits; standardization is inside the model. A
            model in half precision is attacked with images and steps in float32. One with
            mixture norms answers with, and is attacked on, the branch of its present
            route (by default the adversarial one), which the results name.
        images: Floats in the threat's bounds, shape ``(n, ...)``.
        labels: Class indices, integers of any size, shape ``(n,)``.
        threat: ``Linf(8 / 255)`` or ``L2(0.5)``, with the bounds of a valid image; a list
            of them gives the accuracy at each. A radius of 0 is no attack.
        conditions: Names such as ``"clean"``, ``"noise-0.25"``, ``"pgd-50x5"`` (steps x
            restarts), ``"standard"`` (AutoAttack) or ``"crown"`` (a certificate).
        certificate: ``"ibp"``, ``"crown-ibp"`` or ``"crown"``: tried before attacks; a
            certified sample is not attacked.
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
        check_mode(as_module(model))
    threats = threats_of(threat)
    samples = as_samples(images, labels, threats[0].bounds)
    tests = _conditions(conditions, threats, samples.images.shape[1:])
    tests = certify_first(tests, certificate)
    with isolated():
        model = as_module(model)
        classes, screening = _screen(model, samples, tests, threats)
        setup = EvaluationSetup(model, samples, batch_size, seed, progress)
        tested = [_run(setup, condition, classes) for condition in tests]
        flags = contradictions(tests, [each.verdicts for each in tested])
        if screening and (screening.masked or any(flags)):
            tested = add_gradient_free(setup, tested)
        general = screening.flags() if screening else ()
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
) -> tuple[int, Screening | None]:
    """Refuse what cannot be attacked; return the classes, and what a few passes show."""
    samples.check_images(threats)
    threat = next((c.threat for c in conditions if c.searches), None)
    if threat is None:
        return samples.check(model, threats), None
    history = first_answers(model, samples, threat)
    classes = samples.check(model, threats)
    screening = Screening(model, next(samples.batches(model, FEW)), threat, history)
    screening.refuse_blind(conditions)
    return classes, screening


def _beside(result: Result) -> str:
    """Write what must not be missed beside a number: doubts, then notes."""
    return "".join(f"  ! {text}" for text in (*result.flags, *result.notes))


def _conditions(
    names: Sequence[str], threats: Sequence[Threat], shape: Sequence[int]
) -> list[Condition]:
    if isinstance(names, str):
        raise ValueError(f"conditions is a list of names: write [{names!r}]")
    if not names:
        raise ValueError("conditions is empty: name at least one, such as 'pgd-50'")
    return parse_conditions(names, threats, threats[0].bounds, shape=shape)


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
