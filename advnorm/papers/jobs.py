"""One run of a reproduction: train it, judge it, ask it, and read its numbers.

A run's folder is named by the hash of what decides its weights: its recipe without the
parts that only judge it, and its data. Artefacts that need the same run share it; what is
finished is not done again. Settings at their defaults are no part of the hash, so that a
new one does not orphan old runs; a run goes on from a shorter one of the same recipe.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from math import inf
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from advnorm.diagnosis import REVISIONS
from advnorm.files import locked, read_text, write_atomically
from advnorm.papers.artefact import Job
from advnorm.papers.extend_run import prolong
from advnorm.papers.numbers import read
from advnorm.papers.transfer_numbers import transferred
from advnorm.progress import Progress, Quiet
from advnorm.recipe import (
    Recipe,
    RecipeError,
    differences,
    from_yaml,
    original_keys,
    override,
    to_yaml,
)
from advnorm.records import (
    Diagnosis,
    Panel,
    Run,
    RunLostError,
    over_training,
    read_record,
)
from advnorm.runs import diagnose_run, evaluate_run, parse_questions, perturb_run
from advnorm.training import load_data, train
from advnorm.training.checkpoints import newest
from advnorm.training.completion import is_finished

_JUDGING = ("name", "evaluation", "perturbation")


class JobResult(NamedTuple):
    """What a job's run gave."""

    run: str
    numbers: dict[str, float]
    counts: dict[str, int]
    """How many samples are behind the numbers that are accuracies."""
    panels: tuple[Panel, ...]
    seconds: float
    """What it took, also where it was done before."""
    machine: str
    """Where it was trained."""


def identity(recipe: Recipe, root: Path | None = None) -> str:
    """Return the hash of what decides a run's weights."""
    return run_name(recipe, load_data(recipe, root=root).digest())


def run_name(recipe: Recipe, digest: str) -> str:
    """Return the name of a run's folder, from its recipe and its data's digest."""
    return sha256((training_settings(recipe) + digest).encode()).hexdigest()[:16]


def training_settings(recipe: Recipe) -> str:
    """Return what of a recipe decides the weights."""
    values = original_keys(recipe.model_dump(mode="json", exclude_defaults=True))
    kept = {key: value for key, value in values.items() if key not in _JUDGING}
    return json.dumps(kept, sort_keys=True)


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
    run = trained(job.recipe, folder, root=root, device=device, progress=progress)
    with _turn(run.path), timed(run.path):
        answers = _judged(job, run, root, device, progress)
    elsewhere = {}
    if job.targets:
        targets = {
            name: trained(recipe, folder, root=root, device=device, progress=progress)
            for name, recipe in job.targets.items()
        }
        with timed(run.path):
            elsewhere = transferred(
                run, job.recipe, targets, root=root, device=device, progress=progress
            )
    panels = tuple(p for name in shown if name in answers for p in answers[name].panels)
    found = read(job.numbers, run, answers, elsewhere)
    return JobResult(
        run=run.path.name,
        numbers={column: number.value for column, number in found.items()},
        counts={column: one.n for column, one in found.items() if one.n is not None},
        panels=panels,
        seconds=seconds_of(run.path),
        machine=run.environment().machine if run.described else "",
    )


def _judged(
    job: Job, run: Run, root: Path | None, device: str, progress: Progress
) -> dict[str, Diagnosis]:
    """Evaluate, perturb and ask a run as a job says, and return the answers."""
    own = _recipe_of(run)
    for changes in job.evaluations:
        judged = own.model_copy(update={"evaluation": job.recipe.evaluation})
        asked = override(judged, changes, "evaluation")
        evaluate_run(run, asked, root=root, device=device, progress=progress)
    if job.perturbed:
        parts = {"perturbation": job.recipe.perturbation}
        judged = own.model_copy(update={**parts, "evaluation": job.recipe.evaluation})
        perturb_run(run, judged, root=root, device=device, progress=progress)
    answers = {
        name: _answer(run, name, changes, job, root, device, progress)
        for name, changes in job.questions.items()
    }
    return answers | {found.question: found for found in over_training(run.monitored())}


def trained(
    recipe: Recipe,
    folder: Path,
    *,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Run:
    """Return the run of a recipe below ``folder``, trained to its end."""
    digest = load_data(recipe, root=root).digest()
    path = folder / run_name(recipe, digest)
    with _turn(path):
        if not (path / "recipe.yaml").is_file():
            prolong(recipe, path, lambda shorter: folder / run_name(shorter, digest))
        begun = (path / "recipe.yaml").is_file()
        if begun:
            run = Run.open(path)
            own = _recipe_of(run)
            _refuse_changed(path, own, recipe)
            if len(run.epochs()) >= own.epochs and is_finished(run, own.epochs):
                return run
            recipe = own  # begun under another name, or with other judging
        with timed(path):
            return train(
                recipe, path, root=root, device=device, resume=begun, progress=progress
            )


def _turn(path: Path) -> AbstractContextManager[object]:
    """Wait until no other process is at work on a run."""
    turns = path.parent.parent / ".turns"
    turns.mkdir(parents=True, exist_ok=True)
    return locked(turns / path.name, wait=True)


def _recipe_of(run: Run) -> Recipe:
    try:
        return from_yaml(run.recipe_text())
    except RecipeError as error:
        what = str(error).splitlines()[0]
        raise ValueError(
            f"{run.path / 'recipe.yaml'} is damaged ({what}): remove the whole folder"
        ) from error


def _refuse_changed(path: Path, own: Recipe, asked: Recipe) -> None:
    """Refuse a run that was trained when a default had another value."""
    as_asked = own.model_copy(update={key: getattr(asked, key) for key in _JUDGING})
    changed = differences(as_asked, asked)
    if changed:
        raise ValueError(
            f"{path} was trained with other settings ({'; '.join(changed)}): remove it, or "
            "choose another folder"
        )


def _answer(
    run: Run,
    name: str,
    changes: Sequence[str],
    job: Job,
    root: Path | None,
    device: str,
    progress: Progress,
) -> Diagnosis:
    """Ask a question, or find its answer where the same was asked before."""
    settings = [f"{name}.{change}" for change in changes]
    what = [name, settings, job.samples, to_yaml(job.recipe)]
    asked = json.dumps(what + ([REVISIONS[name]] if name in REVISIONS else []))
    path = run.path / "answers" / f"{sha256(asked.encode()).hexdigest()[:16]}.json"
    if path.exists():
        answer = read_record(path, Diagnosis)
        if newest(run.checkpoints, job.recipe.evaluation.weights) in ("", answer.weights):
            return answer
    (answer,) = diagnose_run(
        run,
        job.recipe,
        parse_questions([name], settings),
        samples=job.samples,
        root=root,
        device=device,
        progress=progress,
    )
    with run.writing():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, answer.model_dump_json().encode())
    return answer


@contextmanager
def timed(path: Path) -> Iterator[None]:
    """Add what a block takes to the time that a run has cost, also if it is stopped."""
    start, lost = perf_counter(), False
    try:
        yield
    except RunLostError:
        lost = True
        raise
    finally:
        if not lost and (path / "recipe.yaml").is_file():
            spent = seconds_of(path) + perf_counter() - start
            write_atomically(path / "seconds.json", json.dumps(spent).encode())


def seconds_of(path: Path) -> float:
    """Return what a run has cost so far; a damaged note of it is no reason to stop."""
    try:
        seconds = float(read_text(path / "seconds.json", 100))
    except (OSError, ValueError):
        return 0.0
    return seconds if 0 <= seconds < inf else 0.0
