"""The cost of an artefact at a scale: its runs, and the operations of training and attacks.

Counting them for all artefacts takes minutes, so ``python benchmarks/costs.py`` writes them
to ``costs.json``.
"""

import json
from collections.abc import Callable
from importlib.resources import files

from advnorm.diagnosis.registry import options_of
from advnorm.papers.artefact import Artefact, Job, evaluation_recipes
from advnorm.recipe import Recipe
from advnorm.records import Scale
from advnorm.runs.plan import Plan, plan
from advnorm.studies.cost import Cost, evaluated_samples, evaluation_passes
from advnorm.studies.trained_runs import training_settings

_GRADIENT = 3
"""Passes of a step that needs a gradient: backward costs as much as two forward."""


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
    evaluations = sum(evaluation_passes(recipe) for recipe in evaluation_recipes(job))
    return evaluations + _attacked_loss(job)


def _attacked_loss(job: Job) -> float:
    """Return the passes of the question that replaces an evaluation by an attack."""
    name = "attacked_loss"
    if name not in job.questions:
        return 0.0
    steps = {**options_of(name), **job.questions[name]}["steps"]
    assert isinstance(steps, int)
    return float(min(evaluated_samples(job.recipe), job.samples) * (steps * _GRADIENT + 2))
