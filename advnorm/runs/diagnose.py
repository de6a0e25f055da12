"""Asks questions about a run, or about a model and a data set of the user's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from advnorm import ranks
from advnorm.allocator import freed_memory_kept
from advnorm.diagnosis import QUESTIONS
from advnorm.diagnosis.registry import validate_options
from advnorm.norms import active_branch, route
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe, RecipeError, assignment, option
from advnorm.records import Diagnosis, Run
from advnorm.runs.load import LoadedRun, TrainedModel, check_loaded, first_samples, load_run
from advnorm.training.build import choose_device
from advnorm.training.components import load_data

SAMPLES = 200
"""Test samples of a question, where nothing else is said."""

Asked = Mapping[str, Callable[..., Diagnosis]]


def diagnose_run(
    run: Run,
    recipe: Recipe,
    asked: Asked,
    *,
    samples: int = SAMPLES,
    skip: bool = False,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Iterator[Diagnosis]:
    """Answer questions on the first test samples; each is written when it is known.

    ``asked`` is what :func:`questions` returns. With ``skip`` a question that cannot be
    asked of this model is left out with a line that says why, else it raises. ``recipe`` is
    the run's own; ``evaluation.weights`` and ``evaluation.branch`` count here too. Under
    torchrun it is refused.
    """
    progress, where = progress or Quiet(), _alone(device)
    with run.lock():
        subject = load_run(run, recipe, root, where, progress)
        for found in _answers(subject, asked, samples, skip, progress):
            run.write_diagnosis(found)
            yield found


def diagnose_model(
    model: nn.Module,
    recipe: Recipe,
    asked: Asked,
    *,
    samples: int = SAMPLES,
    skip: bool = False,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Iterator[Diagnosis]:
    """Answer questions about a model that is no run's; nothing is written.

    Of ``recipe``, data, threat and ``evaluation.branch`` count; its name stands for the
    weights.
    """
    progress, where, data = (
        progress or Quiet(),
        _alone(device),
        load_data(recipe, root=root),
    )
    try:
        subject = check_loaded(recipe, data, TrainedModel(model, recipe.name, None), where)
    except (RuntimeError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{recipe.name} does not map samples of {data.name}, of shape {data.shape}, to "
            f"logits: {error}"
        ) from error
    yield from _answers(subject, asked, samples, skip, progress)


def _alone(device: str) -> torch.device:
    where = choose_device(device)
    with ranks.process_group(where):
        ranks.require_single_process("a diagnosis looks at all of its samples together")
    return where


def _answers(
    subject: LoadedRun, asked: Asked, samples: int, skip: bool, progress: Progress
) -> Iterator[Diagnosis]:
    for name, question in asked.items():
        try:
            found = _answer(subject, question, samples, progress)
        except (ValueError, NotImplementedError, FloatingPointError) as error:
            if not skip:
                raise
            progress.line(f"{name}: not asked ({error})")
            continue
        yield found


def questions(names: Sequence[str], changes: Sequence[str] = ()) -> Asked:
    """Return questions by name with their options set, ``question.option=value`` each."""
    given: dict[str, dict[str, Any]] = {name: {} for name in names}
    for change in changes:
        (name, *path), value = assignment(change)
        if len(path) != 1:
            raise RecipeError(
                f"--set takes question.option=value, like hessian.steps=5, not {change!r}"
            )
        if name not in given:
            QUESTIONS[name]  # an unknown one says which exist
            raise RecipeError(f"--set {change}: {name} is not asked; name it too")
        given[name][path[0]] = _numbers(value)
    return {
        name: partial(QUESTIONS[name], **validate_options(name, o))
        for name, o in given.items()
    }


def _answer(
    subject: LoadedRun,
    question: Callable[..., Diagnosis],
    samples: int,
    progress: Progress,
) -> Diagnosis:
    model, recipe, start = subject.model.eval(), subject.recipe, perf_counter()
    images, labels, _ = first_samples(subject.data, samples, subject.device)
    images = images.to(next(model.parameters(), images).dtype)
    clean = recipe.evaluation.branch == "clean"
    kept = freed_memory_kept(images)
    with route(model, domain="clean" if clean else "adversarial"), kept:
        found = question(
            model, images, labels, threat=recipe.threat.build(), progress=progress
        )
        told = {
            "weights": subject.weights,
            "training": subject.training,
            "branch": active_branch(model),
        }
    return found.model_copy(update={**told, "seconds": perf_counter() - start})


def _numbers(value: Any) -> Any:
    """Turn ``8/255`` into a number, also inside of a list."""
    return [option(item) for item in value] if isinstance(value, list) else option(value)
