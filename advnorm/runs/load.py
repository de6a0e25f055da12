"""What is evaluated: a run's model and data, loaded and tried out together."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from advnorm.data import Batch, DataSet
from advnorm.evaluation.checks.context import FEW
from advnorm.evaluation.checks.examiner import flags_of, probe
from advnorm.evaluation.engine import check
from advnorm.evaluation.inputs import check_labels
from advnorm.models import untile
from advnorm.norms import check_statistics
from advnorm.progress import Progress
from advnorm.recipe import Recipe
from advnorm.records import Run, TrainingProgress
from advnorm.threat import Threat
from advnorm.training import checkpoints
from advnorm.training.build import evaluation_threats
from advnorm.training.completion import completion_from, read_completion
from advnorm.training.components import build_model, load_data
from advnorm.training.state import MismatchError, restore


class LoadedRun(NamedTuple):
    """What is evaluated."""

    recipe: Recipe
    data: DataSet
    model: nn.Module
    weights: str
    training: TrainingProgress | None
    """Of a run: how far it is."""
    device: torch.device
    classes: int
    flags: tuple[str, ...]
    """Symptoms of false robustness that a few passes show."""


class TrainedModel(NamedTuple):
    """A run's network with its weights."""

    model: nn.Module
    weights: str
    """Their name and digest."""
    training: TrainingProgress | None
    """How far the run is."""


def load_model(
    run: Run, recipe: Recipe, data: DataSet, *, weights: str, warnings: list[str]
) -> tuple[nn.Module, str]:
    """Return the run's network with its best or last weights, and their name and digest."""
    return load_trained(run, recipe, data, weights=weights, warnings=warnings)[:2]


def load_trained(
    run: Run, recipe: Recipe, data: DataSet, *, weights: str, warnings: list[str]
) -> TrainedModel:
    """Return the run's network with its best or last weights, and how far training is."""
    kind = checkpoints.kind_of(weights)
    found = checkpoints.load(run.checkpoints, kind, warnings=warnings)
    if found is None:
        raise FileNotFoundError(
            f"{run.path} has no whole {weights!r} checkpoint: train it (on), or add --set "
            f"evaluation.weights={'last' if weights == 'best' else 'best'}"
        )
    model = build_model(recipe, data)
    model.to(torch.float64 if recipe.precision == "float64" else torch.float32)
    try:
        restore(found.tensors, model, None)
    except MismatchError as error:
        raise ValueError(
            f"{run.path / 'recipe.yaml'} is not the recipe that {found.path.name} was "
            f"trained with: {error}"
        ) from None
    check_statistics(model)
    last = kind == "state"
    training = (
        completion_from(found.facts, recipe.epochs)
        if last
        else read_completion(run, recipe.epochs)
    )
    return TrainedModel(
        untile(model), checkpoints.name_of(found.path, found.digest), training
    )


def load_run(
    run: Run, recipe: Recipe, root: Path | None, device: torch.device, progress: Progress
) -> LoadedRun:
    """Load the run's model and data, and try them out together."""
    data = load_data(recipe, root=root)
    warnings: list[str] = []
    loaded = load_trained(
        run, recipe, data, weights=recipe.evaluation.weights, warnings=warnings
    )
    for warning in warnings:
        progress.line(warning)
    if loaded.training and not loaded.training.finished:
        progress.line(f"{run.path} is unfinished: {loaded.training}")
    return check_loaded(recipe, data, loaded, device)


def check_loaded(
    recipe: Recipe, data: DataSet, loaded: TrainedModel, device: torch.device
) -> LoadedRun:
    """Try a model and data out together, on a few samples."""
    model, weights, training = loaded
    classes = check_fit(recipe, model.to(device), data, device)
    flags = flags_of(probe(model, first_samples(data, FEW, device), recipe.threat.build()))
    return LoadedRun(recipe, data, model, weights, training, device, classes, flags)


def first_samples(data: DataSet, count: int, device: torch.device) -> Batch:
    """Return the first test samples, as many as there are."""
    order = torch.arange(min(count, len(data.test)))
    return next(data.test.batches(order, batch_size=len(order), device=device))


def named_threats(recipe: Recipe) -> list[Threat]:
    """Return the threats that an evaluation names; without any, the recipe's own alone."""
    spec, own = recipe.evaluation, recipe.threat
    named = spec.threat.eps or spec.threat.norm not in (None, own.norm)
    return evaluation_threats(recipe) if named else [own.build()]


def check_fit(recipe: Recipe, model: nn.Module, data: DataSet, device: torch.device) -> int:
    """Try the model on a few test samples; return the number of classes."""
    if not len(data.test):
        raise ValueError(f"{data.name} has no test samples: name another evaluation.data")
    few = torch.arange(min(8, len(data.test)))
    batch = next(data.test.batches(few, batch_size=8, device=device))
    classes = check(model, batch, bounds=recipe.threat.bounds)
    check_labels(data.test.labels, count=len(data.test), classes=classes)
    return classes
