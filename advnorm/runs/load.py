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
from advnorm.records import Run, Training
from advnorm.threat import Threat
from advnorm.training import checkpoints
from advnorm.training.build import threats
from advnorm.training.completion import how_far, reached
from advnorm.training.components import load, network
from advnorm.training.state import MismatchError, restore


class Subject(NamedTuple):
    """What is evaluated."""

    recipe: Recipe
    data: DataSet
    model: nn.Module
    weights: str
    training: Training | None
    """Of a run: how far it is."""
    device: torch.device
    classes: int
    flags: tuple[str, ...]
    """Symptoms of false robustness that a few passes show."""


class Loaded(NamedTuple):
    """A run's network with its weights."""

    model: nn.Module
    weights: str
    """Their name and digest."""
    training: Training | None
    """How far the run is."""


def load_model(
    run: Run, recipe: Recipe, data: DataSet, *, weights: str, warnings: list[str]
) -> tuple[nn.Module, str]:
    """Return the run's network with its best or last weights, and their name and digest."""
    return load_run(run, recipe, data, weights=weights, warnings=warnings)[:2]


def load_run(
    run: Run, recipe: Recipe, data: DataSet, *, weights: str, warnings: list[str]
) -> Loaded:
    """Return the run's network with its best or last weights, and how far training is."""
    kind = checkpoints.kind_of(weights)
    found = checkpoints.load(run.checkpoints, kind, warnings=warnings)
    if found is None:
        raise FileNotFoundError(
            f"{run.path} has no whole {weights!r} checkpoint: train it (on), or add --set "
            f"evaluation.weights={'last' if weights == 'best' else 'best'}"
        )
    model = network(recipe, data)
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
    training = reached(found.facts, recipe.epochs) if last else how_far(run, recipe.epochs)
    return Loaded(untile(model), checkpoints.name_of(found.path, found.digest), training)


def subject_of(
    run: Run, recipe: Recipe, root: Path | None, device: torch.device, progress: Progress
) -> Subject:
    """Load the run's model and data, and try them out together."""
    data = load(recipe, root=root)
    warnings: list[str] = []
    loaded = load_run(
        run, recipe, data, weights=recipe.evaluation.weights, warnings=warnings
    )
    for warning in warnings:
        progress.line(warning)
    if loaded.training and not loaded.training.finished:
        progress.line(f"{run.path} is unfinished: {loaded.training}")
    return examined(recipe, data, loaded, device)


def examined(
    recipe: Recipe, data: DataSet, loaded: Loaded, device: torch.device
) -> Subject:
    """Try a model and data out together, on a few samples."""
    model, weights, training = loaded
    classes = fits(recipe, model.to(device), data, device)
    flags = flags_of(probe(model, first(data, FEW, device), recipe.threat.build()))
    return Subject(recipe, data, model, weights, training, device, classes, flags)


def first(data: DataSet, count: int, device: torch.device) -> Batch:
    """Return the first test samples, as many as there are."""
    order = torch.arange(min(count, len(data.test)))
    return next(data.test.batches(order, batch_size=len(order), device=device))


def asked_threats(recipe: Recipe) -> list[Threat]:
    """Return the threats that an evaluation names; without any, the recipe's own alone."""
    spec, own = recipe.evaluation, recipe.threat
    named = spec.eps or spec.norm not in (None, own.norm)
    return threats(recipe) if named else [own.build()]


def fits(recipe: Recipe, model: nn.Module, data: DataSet, device: torch.device) -> int:
    """Try the model on a few test samples; return the number of classes."""
    if not len(data.test):
        raise ValueError(f"{data.name} has no test samples: name another evaluation.data")
    few = torch.arange(min(8, len(data.test)))
    batch = next(data.test.batches(few, batch_size=8, device=device))
    classes = check(model, batch, bounds=recipe.threat.bounds)
    check_labels(data.test.labels, count=len(data.test), classes=classes)
    return classes
