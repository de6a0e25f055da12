"""One job of a reproduction: train its run, evaluate and diagnose it, read its numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from advnorm.papers.artefact import Job, evaluation_recipes
from advnorm.papers.numbers import Measurements
from advnorm.progress import Progress, Quiet
from advnorm.records import (
    Accuracy,
    Diagnosis,
    ImageVerdicts,
    Panel,
    Run,
    over_training,
)
from advnorm.runs import evaluate_run, perturb_run
from advnorm.studies.cached_answers import diagnose_once, transfer_once
from advnorm.studies.trained_runs import (
    lock_run,
    read_recipe,
    seconds_of,
    timed,
    train_once,
    training_settings,
)


class JobResult(NamedTuple):
    """The numbers of a job's run."""

    run: str
    numbers: dict[str, float]
    counts: dict[str, int]
    """The number of samples of those numbers that are accuracies."""
    images: dict[str, ImageVerdicts]
    """Which images stayed right, for accuracies under one condition."""
    panels: tuple[Panel, ...]
    seconds: float
    """What the run has cost, earlier reproductions included."""
    machine: str
    """Where it was trained."""


def runs_of(job: Job) -> set[str]:
    """Return what identifies each run that a job needs."""
    return {training_settings(recipe) for recipe in (job.recipe, *job.targets.values())}


def run_job(
    job: Job,
    folder: Path,
    *,
    shown: Sequence[str] = (),
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> JobResult:
    """Do all that a job needs in its run folder below ``folder``, or what is left of it."""
    progress = progress or Quiet()
    run = train_once(job.recipe, folder, root=root, device=device, progress=progress)
    with lock_run(run.path), timed(run.path):
        answers = _measure(job, run, root, device, progress)
    transfers = _transfer(job, run, folder, root, device, progress)
    panels = tuple(p for name in shown if name in answers for p in answers[name].panels)
    measured = Measurements(run, answers, transfers)
    numbers = {column: source.read(measured) for column, source in job.numbers.items()}
    return JobResult(
        run=run.path.name,
        numbers={column: number.value for column, number in numbers.items()},
        counts={column: x.n for column, x in numbers.items() if x.n is not None},
        images={column: x.images for column, x in numbers.items() if x.images},
        panels=panels,
        seconds=seconds_of(run.path),
        machine=run.environment().machine if run.described else "",
    )


def _measure(
    job: Job, run: Run, root: Path | None, device: str, progress: Progress
) -> dict[str, Diagnosis]:
    """Evaluate, perturb and diagnose a run as a job says, and return the diagnoses."""
    trained = read_recipe(run)
    for recipe in evaluation_recipes(job):
        evaluated = trained.model_copy(update={"evaluation": recipe.evaluation})
        evaluate_run(run, evaluated, root=root, device=device, progress=progress)
    if job.perturbed:
        sections = {
            name: getattr(job.recipe, name) for name in ("evaluation", "perturbation")
        }
        perturbed = trained.model_copy(update=sections)
        perturb_run(run, perturbed, root=root, device=device, progress=progress)
    answers = {
        question: diagnose_once(
            run,
            job.recipe,
            question,
            options,
            samples=job.samples,
            root=root,
            device=device,
            progress=progress,
        )
        for question, options in job.questions.items()
    }
    return answers | {answer.question: answer for answer in over_training(run.monitored())}


def _transfer(
    job: Job, run: Run, folder: Path, root: Path | None, device: str, progress: Progress
) -> dict[str, Accuracy]:
    """Return each target's accuracy on the run's examples."""
    if not job.targets:
        return {}
    targets = {
        name: train_once(recipe, folder, root=root, device=device, progress=progress)
        for name, recipe in job.targets.items()
    }
    with timed(run.path):
        return transfer_once(
            run, job.recipe, targets, root=root, device=device, progress=progress
        )
