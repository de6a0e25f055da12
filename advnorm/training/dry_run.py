"""A few samples through a recipe's model and norms, before any folder is written."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from advnorm import data as sets
from advnorm import norms, ranks
from advnorm.attacks import AttackGoal, LogitsFn
from advnorm.draws import Draws
from advnorm.evaluation import check_radius
from advnorm.gradients import perturbs_statistics
from advnorm.model_state import eval_mode
from advnorm.objectives import Adversary
from advnorm.recipe import RecipeError
from advnorm.text import MESSAGE, on_one_line
from advnorm.training.build import Experiment
from advnorm.training.components import build_objective, weight_schedules
from advnorm.training.recipe_checks import check_gradient_rule, check_schedule, pieces_of
from advnorm.training.user_model_checks import check_eval_pass


def dry_run(experiment: Experiment) -> None:
    """Pass a few samples through the model, and refuse what cannot be trained."""
    if experiment.batch_size < 2 * ranks.size() and norms.batch_norms(experiment.model):
        raise RecipeError(
            f"batch_size={experiment.batch_size}: batch statistics need at least 2 samples"
            + (f" on each of the {ranks.size()} ranks" if ranks.size() > 1 else "")
        )
    check_gradient_rule(experiment.recipe, experiment.batch_size)
    if perturbs_statistics(experiment.recipe.gradient.name):
        norms.check_perturbable(experiment.model)
    check_radius(experiment.threat, experiment.data.shape)
    check_schedule(experiment.recipe, experiment.data.shape)
    first = torch.arange(min(4, len(experiment.data.train)))
    images, labels, samples = next(
        experiment.data.train.batches(first, batch_size=4, device=experiment.device)
    )
    sets.AUGMENTATIONS[experiment.recipe.data.augment](images, Draws.of(0, samples))
    images = images.to(next(experiment.model.parameters()).dtype)
    _check_model(experiment, images)
    check_batch_statistics(experiment, images, labels)


def _check_model(experiment: Experiment, images: Tensor) -> None:
    model, recipe = experiment.model, experiment.recipe
    try:
        check_eval_pass(model, images, classes=len(experiment.data.classes))
        with (
            eval_mode(model),
            torch.no_grad(),
            norms.mode(model, "batch"),
            norms.route(model, clean=len(images) // 2),
        ):
            model(images)
    except RecipeError:
        raise
    except Exception as error:  # of any model, also of the user's own
        raise RecipeError(
            f"model {recipe.model.name!r} with norm {recipe.norm.name!r} does not run on "
            f"{experiment.data.name}, images of shape {tuple(images.shape[1:])}: "
            f"{on_one_line(error, MESSAGE)}"
        ) from None


def check_batch_statistics(experiment: Experiment, images: Tensor, labels: Tensor) -> None:
    """Refuse passes with too few samples for batch statistics.

    Where a single sample passes by itself, its feature maps may have enough values, both
    domains may pass together, and norms may synchronize over ranks: only a pass can tell.
    Its rows repeat ``images``.
    """
    spec, share = experiment.recipe.gradient, experiment.recipe.objective.clean_share
    pieces = pieces_of(experiment.recipe, experiment.batch_size)
    batch = experiment.batch_size // pieces
    rows = len(range(batch)[ranks.shard(batch)])
    groups, second = spec.groups or 1, (spec.samples or batch) * rows // batch
    smallest = (share or 1.0) * min(rows, second / groups)
    if smallest >= 2 or not norms.batch_norms(experiment.model):
        return
    where = f" on each of the {ranks.size()} ranks" if ranks.size() > 1 else ""
    with (
        eval_mode(experiment.model),
        torch.no_grad(),
        norms.keep_statistics(experiment.model),
    ):
        with _refusing(
            f"a batch of {experiment.batch_size} passes by {rows} at a time{where}, too "
            f"few for batch statistics: {'lower optimizer.accumulate or ' * (pieces > 1)}"
            f"raise batch_size{' or objective.clean_share' * (share is not None)}"
        ):
            _first_pass(experiment, images, labels, rows)
        if perturbs_statistics(spec.name):
            with _refusing(
                f"gradient={{samples: {second}, groups: {groups}}}{where}: a group has too "
                "few samples for batch statistics; lower groups, or raise samples or "
                "batch_size"
            ):
                _second_pass(experiment, images, labels, second, groups)


@contextmanager
def _refusing(problem: str) -> Iterator[None]:
    """Replace the error of a norm by one that names the settings to change."""
    try:
        yield
    except ValueError:
        raise RecipeError(problem) from None


def _first_pass(experiment: Experiment, images: Tensor, labels: Tensor, rows: int) -> None:
    """Make the passes of a step, and a pass of its attack with each kind of statistics."""
    used = experiment.recipe.attack.statistics
    for statistics in [used] if isinstance(used, str) else dict.fromkeys(used.values()):
        _objective(
            experiment, images, labels, rows, Adversary(_identity_attack, statistics)
        )


def _second_pass(
    experiment: Experiment, images: Tensor, labels: Tensor, rows: int, groups: int
) -> None:
    with norms.statistics_gradient(experiment.model) as zeros:
        pass
    with norms.perturbed(experiment.model, zeros, groups=groups):
        _objective(experiment, images, labels, rows, Adversary(None))


def _objective(
    experiment: Experiment, images: Tensor, labels: Tensor, rows: int, adversary: Adversary
) -> None:
    weights = {
        name: value(0.0) for name, value in weight_schedules(experiment.recipe).items()
    }
    repeated = torch.arange(rows, device=images.device) % len(images)
    build_objective(experiment.recipe)(
        experiment.model, images[repeated], labels[repeated], adversary, **weights
    )


def _identity_attack(
    logits_fn: LogitsFn, clean: Tensor, labels: Tensor, goal: AttackGoal
) -> Tensor:
    """Call the model as an attack would, and change nothing."""
    logits_fn(clean)
    return clean
