"""The cost of an artefact at a scale: its runs, and the operations of training and attacks.

Counting them for all artefacts takes minutes, so ``python benchmarks/costs.py`` writes them
to ``costs.json``.
"""

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from inspect import signature

from advnorm.evaluation.condition_names import (
    ALL_CORRUPTIONS,
    CertificateName,
    NaturalName,
    parse_attacks,
    parse_condition,
)
from advnorm.papers.artefact import Artefact, Job, evaluation_recipes
from advnorm.recipe import Recipe
from advnorm.records import Record, Scale
from advnorm.runs import parse_questions
from advnorm.runs.devices import DEVICES
from advnorm.runs.plan import Plan, plan
from advnorm.studies.trained_runs import training_settings

DEVICE = "a100"
"""The device whose hours are listed."""
_GRADIENT = 3
"""Passes of a step that needs a gradient: backward costs as much as two forward."""
_CERTIFICATES = {"ibp": 2, "crown-ibp": 40, "crown": 400}
"""Passes of a certificate: intervals take two, ten margins backward more."""
_TEST = {"mnist": 10_000, "fashion_mnist": 10_000, "cifar10": 10_000, "cifar100": 10_000}
_TEST |= {"svhn": 26_032, "imagenet": 50_000, "tiny-imagenet": 10_000, "digits": 360}


class Cost(Record):
    """The cost of one seed."""

    runs: int
    operations: float
    """Additions and multiplications of products, training and attacks together."""

    @property
    def hours(self) -> float:
        """Hours on :data:`DEVICE`."""
        return DEVICES[DEVICE].hours(self.operations, half=False)

    def __str__(self) -> str:
        hours = f"{self.hours:.2g} h" if self.hours >= 1 / 60 else "under a minute"
        runs = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        return f"{runs}, {self.operations:.1e} operations, {hours} on one {DEVICE}"


def cost(artefact: Artefact, scale: Scale, count: Callable[[Recipe], Plan] = plan) -> Cost:
    """Count an artefact's runs, each once; attacks as if no sample broke early."""
    jobs = artefact.jobs(scale)
    plans = {training_settings(job.recipe): count(job.recipe) for job in jobs}
    training = sum(run.epoch * run.epochs for run in plans.values())
    attacks = sum(
        plans[training_settings(job.recipe)].forward * _passes(job) for job in jobs
    )
    return Cost(runs=len(plans), operations=float(training + attacks))


def recorded_costs() -> dict[str, dict[Scale, Cost]]:
    """Return the costs in ``costs.json``, by artefact and scale."""
    text = files("advnorm.papers").joinpath("costs.json").read_text()
    return {
        name: {scale: Cost.model_validate(values) for scale, values in scales.items()}
        for name, scales in json.loads(text).items()
    }


def _passes(job: Job) -> float:
    """Return the forward passes of all evaluations of a job, and of ``attacked_loss``."""
    evaluations = sum(_evaluation(recipe) for recipe in evaluation_recipes(job))
    return evaluations + _attacked_loss(job)


def _attacked_loss(job: Job) -> float:
    """Return the passes of the question that replaces an evaluation by an attack."""
    name = "attacked_loss"
    if name not in job.questions:
        return 0.0
    settings = [f"{name}.{change}" for change in job.questions[name]]
    (question,) = parse_questions([name], settings).values()
    steps = signature(question).parameters["steps"].default
    return float(min(_test_samples(job.recipe), job.samples) * (steps * _GRADIENT + 2))


def _evaluation(recipe: Recipe) -> float:
    """Return the passes of a recipe's evaluation."""
    spec, total = recipe.evaluation, _test_samples(recipe)
    radii = len(spec.threat.eps) or 2
    each = sum(_passes_of(n) * (radii if _has_radius(n) else 1) for n in spec.conditions)
    return each * min(total, spec.samples or total)


def _test_samples(recipe: Recipe) -> int:
    """Return how many test samples there are."""
    return recipe.data.test or _TEST.get(recipe.data.name, 1000)


@cache
def _passes_of(name: str) -> int:
    """Return the passes that a condition may take for one sample.

    >>> [_passes_of(name) for name in ("clean", "pgd-10x2", "apgd_t-100", "square-500")]
    [1, 60, 2700, 500]
    """
    if name == ALL_CORRUPTIONS:
        return 19 * 5
    condition = parse_condition(name)
    if isinstance(condition, NaturalName):
        return 1
    if isinstance(condition, CertificateName):
        return _CERTIFICATES[name]
    return sum(attack.passes for attack in parse_attacks(name))


def _has_radius(name: str) -> bool:
    """Tell whether a condition is tested at each radius."""
    return name != ALL_CORRUPTIONS and not isinstance(parse_condition(name), NaturalName)
