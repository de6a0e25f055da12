"""A recipe's model, norms and batches tried out: a misfit is known before training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from advnorm import data as sets
from advnorm import norms, ranks
from advnorm.attacks import Aim, LogitsFn
from advnorm.draws import Draws
from advnorm.evaluation import check_radius
from advnorm.gradients import perturbs_statistics
from advnorm.model_state import eval_mode
from advnorm.objectives import Adversary
from advnorm.recipe import RecipeError
from advnorm.training.build import Job, check_schedule
from advnorm.training.components import objective_of, weight_schedules
from advnorm.training.gradient_checks import fits


def try_out(job: Job) -> None:
    """Pass a few samples through the model: a misfit is known before a folder is made."""
    if job.batch_size < 2 * ranks.size() and norms.batch_norms(job.model):
        raise RecipeError(
            f"batch_size={job.batch_size}: batch statistics need at least 2 samples"
            + (f" on each of the {ranks.size()} ranks" if ranks.size() > 1 else "")
        )
    fits(job.recipe, job.batch_size)
    if perturbs_statistics(job.recipe.gradient.name):
        norms.check_perturbable(job.model)
    check_radius(job.threat, job.data.shape)
    check_schedule(job.recipe, job.data.shape)
    first = torch.arange(min(4, len(job.data.train)))
    images, labels, samples = next(
        job.data.train.batches(first, batch_size=4, device=job.device)
    )
    sets.AUGMENTATIONS[job.recipe.data.augment](images, Draws.of(0, samples))
    images = images.to(next(job.model.parameters()).dtype)
    _try_model(job, images)
    try_statistics(job, images, labels)


def _try_model(job: Job, images: Tensor) -> None:
    model = job.model
    with eval_mode(model), torch.no_grad():
        try:
            model(images)
            with norms.mode(model, "batch"), norms.route(model, clean=len(images) // 2):
                model(images)
        except (RuntimeError, ValueError) as error:
            raise RecipeError(
                f"model {job.recipe.model.name!r} with norm {job.recipe.norm.name!r} does "
                f"not run on {job.data.name}: {error}"
            ) from None


def try_statistics(job: Job, images: Tensor, labels: Tensor) -> None:
    """Refuse passes of too few samples for batch statistics.

    Where a single sample passes by itself, its feature maps may have enough values, both
    domains may pass together, and norms may ask other ranks: only a pass can tell. Its
    rows are ``images`` again and again.
    """
    spec, share = job.recipe.gradient, job.recipe.objective.clean_share
    pieces = job.recipe.optimizer.accumulate
    whole = job.batch_size // pieces
    rows = len(range(whole)[ranks.shard(whole)])
    groups, second = spec.groups or 1, (spec.samples or whole) * rows // whole
    least = (share or 1.0) * min(rows, second / groups)
    if least >= 2 or not norms.batch_norms(job.model):
        return
    there = f" on each of the {ranks.size()} ranks" if ranks.size() > 1 else ""
    with eval_mode(job.model), torch.no_grad(), norms.keep_statistics(job.model):
        with _told(
            f"a batch of {job.batch_size} passes by {rows} at a time{there}, too few for "
            f"batch statistics: {'lower optimizer.accumulate or ' * (pieces > 1)}raise "
            f"batch_size{' or objective.clean_share' * (share is not None)}"
        ):
            _first_pass(job, images, labels, rows)
        if perturbs_statistics(spec.name):
            with _told(
                f"gradient={{samples: {second}, groups: {groups}}}{there}: a group has too "
                "few samples for batch statistics; lower groups, or raise samples or "
                "batch_size"
            ):
                _second_pass(job, images, labels, second, groups)


@contextmanager
def _told(problem: str) -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise RecipeError(problem) from None


def _first_pass(job: Job, images: Tensor, labels: Tensor, rows: int) -> None:
    """Make the passes of a step, and one of its attack by each statistics it is to use."""
    given = job.recipe.attack.statistics
    for statistics in [given] if isinstance(given, str) else dict.fromkeys(given.values()):
        _objective(job, images, labels, rows, Adversary(_look, statistics))


def _second_pass(job: Job, images: Tensor, labels: Tensor, rows: int, groups: int) -> None:
    with norms.statistics_gradient(job.model) as zeros:
        pass
    with norms.perturbed(job.model, zeros, groups=groups):
        _objective(job, images, labels, rows, Adversary(None))


def _objective(
    job: Job, images: Tensor, labels: Tensor, rows: int, adversary: Adversary
) -> None:
    weights = {name: value(0.0) for name, value in weight_schedules(job.recipe).items()}
    again = torch.arange(rows, device=images.device) % len(images)
    objective_of(job.recipe)(job.model, images[again], labels[again], adversary, **weights)


def _look(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, aim: Aim) -> Tensor:
    """Stand in for an attack: it sees the model as one would, and changes nothing."""
    logits_fn(clean)
    return clean
