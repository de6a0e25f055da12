"""``advnorm.evaluate``: the accuracies of any model under attacks and certificates."""

from collections.abc import Sequence
from time import perf_counter
from typing import Literal

from torch import Tensor, nn

from advnorm.data import Batch
from advnorm.evaluation.adaptation import Adapt, as_adaptation, bind
from advnorm.evaluation.adaptive_stages import adapt_conditions
from advnorm.evaluation.batch_api import evaluate_batches, refuse_alone
from advnorm.evaluation.batch_statistics import Statistics, batch_statistics
from advnorm.evaluation.certificates import refuse_broken_certificates
from advnorm.evaluation.checks.context import FEW
from advnorm.evaluation.condition_names import (
    ALL_CORRUPTIONS,
    RADII,
    NaturalName,
    parse_condition,
)
from advnorm.evaluation.conditions import (
    Condition,
    certify_first,
    parse_conditions,
    search_in,
)
from advnorm.evaluation.engine import PassTally
from advnorm.evaluation.gradient_free import (
    ConditionResult,
    EvaluationSetup,
    add_gradient_free,
    run_and_keep,
)
from advnorm.evaluation.inputs import (
    check_mode,
    explain_shape,
    refuse_misplaced_threat,
    threats_of,
)
from advnorm.evaluation.planted import planted_test_of, with_planted_test
from advnorm.evaluation.radii import tighten
from advnorm.evaluation.results import Evaluation
from advnorm.evaluation.samples import (
    AnyModel,
    Samples,
    as_module,
    as_samples,
    isolated,
)
from advnorm.evaluation.screening import Screening, contradictions, first_answers
from advnorm.folding import SearchPrecision
from advnorm.labelled_data import Array, LabelledData
from advnorm.norms import active_branch
from advnorm.progress import Progress
from advnorm.records import Result, Verdicts
from advnorm.threat import Threat

UNIT = (0.0, 1.0)
"""The bounds of images where no threat says other ones."""


def evaluate(  # noqa: PLR0913 (one flat call, for newcomers)
    model: AnyModel,
    images: Array | LabelledData,
    labels: Array | None = None,
    threat: Threat | Sequence[Threat] | None = None,
    *,
    conditions: Sequence[str] = ("clean", "fgsm", "pgd-50"),
    certificate: str = "none",
    batch_size: int = 250,
    seed: int = 0,
    train_mode: Literal["set", "refuse"] = "set",
    keep: Literal["nothing", "adversarial"] = "nothing",
    radii: bool = False,
    search_precision: SearchPrecision = "float32",
    adapt: Adapt | None = None,
    statistics: Statistics = "running",
    malicious: float = 0.0,
    attacked: float = 1.0,
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
    >>> loader = torch.utils.data.DataLoader(list(zip(images, labels)), batch_size=4)
    >>> evaluate(model, loader, threat=Linf(8 / 255)).verdicts == result.verdicts
    True

    Args:
        model: A module or function that maps images in the bounds to logits;
            standardization is inside the model. It may return a tensor, a tuple with the
            logits first, or a dict or object with ``logits``. A
            model in half precision is attacked with images and steps in float32. One with
            mixture norms answers with, and is attacked on, the branch of its present
            route (by default the adversarial one), which the results name.
        images: Floats in the threat's bounds, shape ``(n, ...)``: a tensor, an array or a
            list. Or a Dataset or DataLoader of images and labels, which is read once, into
            memory.
        labels: Class indices, integers of any size, shape ``(n,)``; ``None`` where
            ``images`` is a Dataset or DataLoader.
        threat: ``Linf(8 / 255)`` or ``L2(0.5)``, with the bounds of a valid image; a list
            of them gives the accuracy at each. A radius of 0 is no attack. Needed unless
            all conditions are without an adversary (clean, noise, corruptions); images
            are then in [0, 1].
        conditions: Names such as ``"clean"``, ``"noise-0.25"``, ``"pgd-50x5"`` (steps x
            restarts), ``"standard"`` (AutoAttack) or ``"crown"`` (a certificate).
        certificate: ``"ibp"``, ``"crown-ibp"`` or ``"crown"``: tried before attacks; a
            certified sample is not attacked.
        batch_size: Samples attacked together; no verdict depends on it.
        seed: Decides every random start.
        train_mode: What to do about a model in train mode: set it to evaluation and put it
            back afterwards, or refuse it.
        radii: Bracket the robust radius of each sample as well, in each norm: the largest
            certified and the smallest broken one, the curve of the accuracy down to 0%,
            its area and medians. The same as the condition ``"radii"``.
        keep: ``"adversarial"`` keeps the images as well: ``Evaluation.adversarial``.
        search_precision: ``"bfloat16"`` lets attacks pass in this precision, which is
            faster on many machines; every success is confirmed in the model's own.
        adapt: What searches pass in place of the model: ``{layer: surrogate}`` for the
            backward pass of layers (BPDA), or an :class:`advnorm.evaluation.Adaptation`
            with draws (EOT), another model, or a loss.
            Verdicts are those of the plain model; names of conditions end in ``+adapt``.
        statistics: Whose statistics the model's batch norms take: the running ones, or
            those of the test batch, around its mean (``"batch"``) or its median. Then all
            batches must be full, verdicts depend on the batch, which they name, and
            fgsm, bim and pgd attack each batch as a whole, through its statistics.
        malicious: With statistics of the batch: the share of each batch that an attack
            moves to make the other rows wrong, which alone get verdicts.
        attacked: With statistics of the batch: the share of each batch that is attacked at
            a time, beside clean other rows; with 1 every row is attacked at once.
        progress: Where to report; by default nowhere.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is a number of samples from 1, not {batch_size}")
    _check_choice("train_mode", train_mode, ("set", "refuse"))
    _check_choice("keep", keep, ("nothing", "adversarial"))
    if train_mode == "refuse":
        check_mode(as_module(model))
    if radii and RADII not in conditions and not isinstance(conditions, str):
        conditions = [*conditions, RADII]
    threats = _threats(threat, labels, conditions)
    samples = as_samples(images, labels, threats[0].bounds if threats else UNIT)
    tests = _conditions(conditions, threats, samples)
    if statistics != "running" or malicious or attacked != 1:
        refuse_alone(
            radii, certificate, search_precision, adapts=bool(as_adaptation(adapt))
        )
        batches = batch_statistics(statistics, batch_size, malicious, attacked)
        return evaluate_batches(
            model, samples, tests, threats, batches, seed=seed, progress=progress, keep=keep
        )
    tests = search_in(certify_first(tests, certificate), search_precision)
    with isolated():
        model = as_module(model)
        tests = _adapted(adapt, tests, model, samples)
        classes, screening = _screen(model, samples, tests, threats)
        kept = keep == "adversarial"
        setup = EvaluationSetup(model, samples, batch_size, seed, progress, kept)
        run = [_run(setup, condition, classes) for condition in tests]
        tested, flags = _examine(setup, run, classes, screening)
    verdicts = [each.verdicts for each in tested]
    results, verdicts = _with_tight_radii(tests, _flagged(tested, flags), verdicts)
    refuse_broken_certificates(zip(results, verdicts, strict=True))
    by_key = {r.key: own for r, own in zip(results, verdicts, strict=True)}
    return Evaluation(tuple(results), by_key, _kept_images(results, tested))


def _examine(
    setup: EvaluationSetup,
    run: Sequence[ConditionResult],
    classes: int,
    screening: Screening | None,
) -> tuple[list[ConditionResult], list[Sequence[str]]]:
    """Add planted tests, and what needs no gradient where gradients are masked; flag."""
    tested = [_with_planted_test(setup, each, classes) for each in run]
    tests = [each.condition for each in run]
    flags = contradictions(tests, [each.verdicts for each in tested])
    missed = any(each.result.flags for each in tested)  # plants, so far
    if screening and (screening.masked or missed or any(flags)) and not _by_draws(tests):
        tested = add_gradient_free(setup, tested)
    general = screening.flags() if screening else ()
    return tested, [(*general, *own) for own in flags]


def _by_draws(tests: Sequence[Condition]) -> bool:
    """Tell whether verdicts are those of draws, which the attacks added have none of."""
    return any(test.adaptation and test.adaptation.changes_verdicts for test in tests)


def _flagged(
    tested: Sequence[ConditionResult], flags: Sequence[Sequence[str]]
) -> list[Result]:
    """Return the results of searches with their flags."""
    return [
        each.result.model_copy(
            update={"flags": (*own, *each.result.flags) if each.condition.searches else ()}
        )
        for each, own in zip(tested, flags, strict=True)
    ]


def _kept_images(
    results: Sequence[Result], tested: Sequence[ConditionResult]
) -> dict[str, Tensor]:
    pairs = zip(results, tested, strict=True)
    return {r.key: each.images for r, each in pairs if each.images is not None}


def _with_tight_radii(
    tests: Sequence[Condition], results: list[Result], verdicts: list[Verdicts]
) -> tuple[list[Result], list[Verdicts]]:
    """Count in the brackets what all other conditions broke."""
    pairs = list(zip(results, verdicts, strict=True))
    for number, (condition, (result, own)) in enumerate(zip(tests, pairs, strict=True)):
        if condition.name == RADII:
            tight = tighten(own, result, pairs)
            update = {"radii": condition.summary(tight)}
            results[number], verdicts[number] = result.model_copy(update=update), tight
    return results, verdicts


def _adapted(
    adapt: Adapt | None, tests: list[Condition], model: nn.Module, samples: Samples
) -> list[Condition]:
    """Return the conditions with an adaptive search; what does not fit is refused."""
    if not as_adaptation(adapt):
        return tests
    samples.check_images([])
    with explain_shape(samples.images):
        bound = bind(adapt, model, next(samples.batches(model, FEW)).images)
    return adapt_conditions(tests, bound)


def _screen(
    model: nn.Module,
    samples: Samples,
    conditions: Sequence[Condition],
    threats: Sequence[Threat],
) -> tuple[int, Screening | None]:
    """Refuse what cannot be attacked; return the classes, and what a few passes show."""
    samples.check_images(threats)
    threat = next((c.threat for c in conditions if c.searches), None)
    with explain_shape(samples.images):
        if threat is None:
            return samples.check(model, threats), None
        history = first_answers(model, samples, threat)
        classes = samples.check(model, threats)
    screening = Screening(model, next(samples.batches(model, FEW)), threat, history)
    screening.refuse_blind(conditions)
    return classes, screening


def _with_planted_test(
    setup: EvaluationSetup, tested: ConditionResult, classes: int
) -> ConditionResult:
    """Add the planted test to the result of a suite, and its flag."""
    samples = setup.samples

    def load(numbers: Tensor) -> Batch:
        few = Samples(samples.images[numbers], samples.labels[numbers], samples.bounds)
        batch = next(few.batches(setup.model, len(numbers)))
        return batch._replace(samples=numbers.to(batch.samples.device))

    test = planted_test_of(
        setup.model,
        tested.condition,
        tested.verdicts,
        load,
        classes=classes,
        batch_size=setup.batch_size,
        seed=setup.seed,
    )
    return tested._replace(result=with_planted_test(tested.result, test))


def _check_choice(name: str, value: str, choices: tuple[str, str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {choices[0]!r} or {choices[1]!r}, not {value!r}")


def _threats(
    threat: Threat | Sequence[Threat] | None, labels: object, names: Sequence[str]
) -> list[Threat]:
    """Return the threats; none where no condition needs one."""
    refuse_misplaced_threat(labels)
    if isinstance(names, str):
        raise ValueError(f"conditions is a list of names: write [{names!r}]")
    if not names:
        raise ValueError("conditions is empty: name at least one, such as 'pgd-50'")
    if threat is not None:
        return threats_of(threat)
    for name in names:
        if name != ALL_CORRUPTIONS and not isinstance(parse_condition(name), NaturalName):
            raise ValueError(
                f"{name} needs a threat: pass one, such as threat=advnorm.Linf(8/255)"
            )
    return []


def _conditions(
    names: Sequence[str], threats: Sequence[Threat], samples: Samples
) -> list[Condition]:
    shape = samples.images.shape[1:]
    return parse_conditions(names, threats, samples.bounds, shape=shape)


def _run(setup: EvaluationSetup, condition: Condition, classes: int) -> ConditionResult:
    start, model = perf_counter(), setup.model
    batches = setup.samples.batches(model, setup.batch_size)
    total = len(setup.samples.images)
    tally = PassTally()
    counted = setup._replace(tally=tally)
    verdicts, images = run_and_keep(counted, batches, condition, total=total)
    result = Result(
        **condition.result_fields(verdicts, classes),
        data="given",
        weights="given",
        branch=active_branch(model),
        seed=setup.seed,
        seconds=perf_counter() - start,
        queries=tally.queries,
        gradients=tally.gradients,
    )
    return ConditionResult(condition, result, verdicts, images)
