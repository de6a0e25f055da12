"""Loads a run's model and data, and checks them together."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from advnorm import ranks
from advnorm.data import Batch, DataSet
from advnorm.evaluation.checks.auditor import flags_of, probe
from advnorm.evaluation.checks.context import FEW
from advnorm.evaluation.engine import check_model, search_dtype
from advnorm.evaluation.inputs import check_labels
from advnorm.models import Source, is_user_model, untile
from advnorm.norms import check_statistics
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe, read
from advnorm.records import Run, TrainingProgress
from advnorm.text import MESSAGE, on_one_line
from advnorm.threat import Threat
from advnorm.training import checkpoints
from advnorm.training.build import choose_device
from advnorm.training.completion import completion_from, read_completion
from advnorm.training.components import build_model, evaluation_threats, load_data
from advnorm.training.state import MismatchError, restore
from advnorm.training.stop import StoppedError
from advnorm.training.user_inputs import passed_in_python
from advnorm.training.user_model_checks import (
    check_logits_of_classes,
    fixed_statistics_pass,
)


class TrainedModel(NamedTuple):
    """A run's network with its weights."""

    model: nn.Module
    weights: str
    """Their name and digest."""
    training: TrainingProgress | None
    """How much of the training is done."""


class LoadedRun(NamedTuple):
    """A run's model and data, checked together."""

    recipe: Recipe
    data: DataSet
    model: nn.Module
    weights: str
    training: TrainingProgress | None
    device: torch.device
    classes: int
    flags: tuple[str, ...]
    """Symptoms of false robustness that a few passes show."""
    progress: Progress = Quiet()
    """Where rank 0 reports."""


def load_model(
    run: Run | Path | str,
    *,
    weights: str = "best",
    root: Path | None = None,
    device: str = "cpu",
    model: Source | str | None = None,
    data: Any = None,
) -> nn.Module:
    """Return the model of a run folder, in evaluation mode.

    Args:
        run: The folder that ``advnorm.train`` or ``advnorm train`` wrote.
        weights: ``best`` (highest validation accuracy) or ``last``.
        root: The folder of data sets; the run's own tells shape and classes.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``auto``.
        model: That which was passed to ``advnorm.train``, or ``"FILE.py:NAME"``.
        data: That which was passed to ``advnorm.train``.

    Raises:
        FileNotFoundError: The folder is no run, or has no such weights.

    >>> import tempfile, advnorm
    >>> recipe = advnorm.recipe.Recipe(epochs=1, data=advnorm.recipe.DataSpec(train=64))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = advnorm.train(recipe, f"{folder}/run", device="cpu")
    ...     model = advnorm.load(f"{folder}/run")
    >>> model(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    opened = run if isinstance(run, Run) else Run.open(Path(run))
    with passed_in_python(read(opened.path / "recipe.yaml"), model, data) as recipe:
        loaded = load_data(recipe, root=root)
        trained = load_trained(opened, recipe, loaded, weights=weights, warnings=[])
    return trained.model.to(choose_device(device)).eval()


def load_trained(
    run: Run, recipe: Recipe, data: DataSet, *, weights: str, warnings: list[str]
) -> TrainedModel:
    """Return the run's network with its best or last weights, and its training progress."""
    kind = checkpoints.kind_of(weights)
    checkpoint = checkpoints.load(run.checkpoints, kind, warnings=warnings)
    if checkpoint is None:
        raise FileNotFoundError(
            f"{run.path} has no whole {weights!r} checkpoint: train it, or add --set "
            f"evaluation.weights={'last' if weights == 'best' else 'best'}"
        )
    model = build_model(recipe, data)
    model.to(torch.float64 if recipe.precision == "float64" else torch.float32)
    try:
        restore(checkpoint.tensors, model, None)
    except MismatchError as error:
        raise ValueError(
            f"{run.path / 'recipe.yaml'} is not the recipe that {checkpoint.path.name} was "
            f"trained with: {error}"
        ) from None
    check_statistics(model)
    last = kind == "state"
    training = (
        completion_from(checkpoint.facts, recipe.epochs)
        if last
        else read_completion(run, recipe.epochs)
    )
    return TrainedModel(
        untile(model), checkpoints.name_of(checkpoint.path, checkpoint.digest), training
    )


@contextmanager
def open_run(
    run: Run,
    recipe: Recipe,
    *,
    root: Path | None,
    device: str,
    progress: Progress | None,
    single_process: str | None = None,
) -> Iterator[LoadedRun]:
    """Join the ranks, lock the run folder, and load its model and data.

    ``single_process`` says why several ranks are refused, where they are.
    """
    where = choose_device(device)
    with ranks.process_group(where), ExitStack() as scopes:
        if single_process:
            ranks.require_single_process(single_process)
        progress = progress if progress and ranks.is_first() else Quiet()
        ranks.run_on_first(lambda: scopes.enter_context(run.lock()))
        yield load_run(run, recipe, root, where, progress)


def load_run(
    run: Run, recipe: Recipe, root: Path | None, device: torch.device, progress: Progress
) -> LoadedRun:
    """Load the run's model and data, and check them together on a few samples."""
    data = load_data(recipe, root=root)
    warnings: list[str] = []
    model, weights, training = load_trained(
        run, recipe, data, weights=recipe.evaluation.weights, warnings=warnings
    )
    for warning in warnings:
        progress.line(warning)
    if training and not training.finished:
        progress.line(f"{run.path} is unfinished: {training}")
    classes = check_fit(recipe, model.to(device), data, device)
    flags = flags_of(probe(model, first_samples(data, FEW, device), recipe.threat.build()))
    return LoadedRun(
        recipe, data, model, weights, training, device, classes, flags, progress
    )


def first_samples(data: DataSet, count: int, device: torch.device) -> Batch:
    """Return the first test samples, as many as there are."""
    order = torch.arange(min(count, len(data.test)))
    return next(data.test.batches(order, batch_size=len(order), device=device))


def named_threats(recipe: Recipe) -> list[Threat]:
    """Return the threats that the evaluation names; if none, the recipe's own."""
    spec, own = recipe.evaluation, recipe.threat
    named = spec.threat.eps or spec.threat.norm not in (None, own.norm)
    return evaluation_threats(recipe) if named else [own.build()]


def check_fit(recipe: Recipe, model: nn.Module, data: DataSet, device: torch.device) -> int:
    """Try the model on a few test samples; return the number of classes."""
    if not len(data.test):
        raise ValueError(f"{data.name} has no test samples: name another evaluation.data")
    few = torch.arange(min(8, len(data.test)))
    batch = next(data.test.batches(few, batch_size=8, device=device))
    with explain_misfit(data.shape):
        if is_user_model(recipe.model.name):
            answer = fixed_statistics_pass(model, batch.images.to(search_dtype(model)))
            if isinstance(answer, tuple | list):  # its first item are no logits
                check_logits_of_classes(answer, rows=len(few), classes=len(data.classes))
        classes = check_model(model, batch, bounds=recipe.threat.bounds)
    check_labels(data.test.labels, count=len(data.test), classes=classes)
    return classes


@contextmanager
def explain_misfit(shape: Sequence[int]) -> Iterator[None]:
    """Say that a model does not take images of a shape, where it fails on a few of them."""
    try:
        yield
    except (ValueError, OSError, StoppedError):
        raise
    except Exception as error:  # of any model, also of the user's own
        raise ValueError(
            f"the model does not map images of shape {tuple(shape)} to logits: "
            f"{on_one_line(error, MESSAGE)}; give the data that it is made for (data.name)"
        ) from error
