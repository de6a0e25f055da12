"""Turns a recipe into objects; nothing below ever sees the recipe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from advnorm import data as sets
from advnorm import models, ranks
from advnorm.evaluation import check_radius, parse_conditions
from advnorm.objectives import CERTIFIED, check_combination, check_weights
from advnorm.recipe import ModelSpec, Recipe, RecipeError, largest
from advnorm.threat import THREATS, Threat
from advnorm.training import components
from advnorm.training.gradient_checks import check_gradient_rule
from advnorm.training.monitor_checks import check_monitor

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class Experiment:
    """A recipe and the objects made of it."""

    recipe: Recipe
    data: sets.DataSet
    model: nn.Module
    optimizer: torch.optim.Optimizer
    threat: Threat
    device: torch.device

    @property
    def batch_size(self) -> int:
        """Samples of a step, over all ranks."""
        return min(self.recipe.batch_size, len(self.data.train))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch; a rest is left out, and drawn in another epoch."""
        return max(1, len(self.data.train) // self.recipe.batch_size)


def build_experiment(
    recipe: Recipe, *, root: Path | None, device: str, begun: bool = False
) -> Experiment:
    """Make everything that a recipe names; the model's start depends on its seed alone.

    What has ``begun`` has weights of its own, and the run that it started from may be gone.
    """
    check_recipe(recipe)
    where = choose_device(device)
    data = components.load_data(recipe, root=root)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        model = components.build_model(recipe, data).to(where)
    if recipe.init_from is not None and not begun:
        components.load_initial_weights(recipe.init_from, model)
    model.to(torch.float64 if recipe.precision == "float64" else torch.float32)
    if recipe.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Experiment(
        recipe=recipe,
        data=data,
        model=model,
        optimizer=components.build_optimizer(recipe, model),
        threat=recipe.threat.build(),
        device=where,
    )


def check_recipe(recipe: Recipe) -> None:
    """Look up every name of a recipe, and report all that are wrong at once."""
    lookups: list[Callable[[], object]] = [
        lambda: sets.DATA[recipe.data.name.partition(":")[0]],
        lambda: sets.AUGMENTATIONS[recipe.data.augment],
        lambda: _model_options(recipe.model),
        lambda: components.build_norm(recipe),
        lambda: parse_conditions(recipe.evaluation.conditions, [], recipe.threat.bounds),
        lambda: recipe.threat.build(),
        lambda: check_schedule(recipe),
        lambda: evaluation_threats(recipe),
        lambda: _attack(recipe),
        lambda: components.build_objective(recipe),
        lambda: components.weight_schedules(recipe),
        lambda: components.build_gradient_rule(recipe),
        lambda: check_gradient_rule(recipe, recipe.batch_size),
        lambda: check_combination(
            norm=recipe.norm.name,
            objective=recipe.objective.name,
            batching=recipe.objective.batching,
            clean_rows=_clean_rows(recipe),
        ),
        lambda: check_weights(
            recipe.objective.name,
            components.largest_weights(recipe),
            clean_rows=_clean_rows(recipe),
        ),
        lambda: _norm_places(recipe),
        lambda: _certified(recipe),
        lambda: _ranks(recipe),
        lambda: check_monitor(recipe),
    ]
    problems = []
    for look_up in lookups:
        try:
            look_up()
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RecipeError("\n".join(dict.fromkeys(problems)))


def check_schedule(recipe: Recipe, shape: Sequence[int] | None = None) -> None:
    """Refuse a schedule that lets eps outgrow the images, of ``shape`` where it matters."""
    threat, factor = recipe.threat.build(), largest(recipe.threat.schedule, recipe.epochs)
    if factor <= 1:
        return
    try:
        widest = threat.with_eps(threat.eps * factor)
        if shape is not None:
            check_radius(widest, shape)
    except ValueError:
        raise RecipeError(
            f"threat.schedule: eps would reach {threat.eps * factor:g}, further than any "
            "two images are apart; lower threat.eps or the schedule"
        ) from None


def evaluation_threats(recipe: Recipe) -> list[Threat]:
    """Return the threats of the evaluation; by default at half the radius and at it."""
    spec, own = recipe.evaluation, recipe.threat
    if spec.threat.norm not in (None, own.norm) and not spec.threat.eps:
        raise ValueError(
            f"evaluation.threat.norm={spec.threat.norm} is not the norm that the recipe "
            f"has a radius for ({own.norm}): give evaluation.threat.eps too"
        )
    radii = spec.threat.eps or tuple(own.eps * factor for factor in (0.5, 1.0))
    kind = THREATS[spec.threat.norm or own.norm]
    return [kind(eps, own.bounds) for eps in sorted(radii)]


def _clean_rows(recipe: Recipe) -> int | None:
    """Return the clean images that pass together, in a part of a batch on one rank."""
    share = recipe.objective.clean_share
    if share is None:
        return None
    rows = recipe.batch_size // (recipe.optimizer.accumulate * ranks.size())
    clean = round(share * rows)
    if share and not clean:
        raise ValueError(
            f"objective.clean_share={share:g} leaves no clean image of the {rows} that "
            "pass together: raise it or batch_size, or lower optimizer.accumulate"
        )
    return clean


def _certified(recipe: Recipe) -> None:
    spec = recipe.validation
    if spec.eps is not None:
        recipe.threat.build().with_eps(spec.eps)
    if recipe.objective.name not in CERTIFIED:
        return
    if recipe.compile:
        raise ValueError(
            f"compile: {recipe.objective.name!r} walks the model's own graph, and there is "
            "nothing to compile; leave it out"
        )
    for name in ("mixup", "label_smoothing"):
        if getattr(recipe.data, name):
            raise ValueError(
                f"data.{name}: {recipe.objective.name!r} bounds the margins of one label, "
                "and mixed labels have none; set it to 0"
            )


def _norm_places(recipe: Recipe) -> None:
    if recipe.norm.freeze_epochs >= recipe.epochs:
        raise ValueError(
            f"norm.freeze_epochs={recipe.norm.freeze_epochs}: some of the {recipe.epochs} "
            "epochs must move the running statistics first"
        )
    if recipe.norm.where == ():
        raise ValueError(
            "norm.where names no place: write all, input or places, or norm none"
        )


def _ranks(recipe: Recipe) -> None:
    """Refuse a batch that cannot be dealt out: each rank needs rows, and alike ones."""
    count, share = ranks.size(), recipe.objective.clean_share
    if recipe.batch_size < count:
        raise ValueError(f"batch_size={recipe.batch_size} is less than the {count} ranks")
    part = recipe.batch_size // recipe.optimizer.accumulate
    clean = part if share is None else round(share * part)
    if clean != part and (clean % count or part % count):
        raise ValueError(
            f"objective.clean_share leaves {clean} clean images in a batch of {part}: with "
            f"{count} ranks, both must divide by {count}"
        )


def choose_device(name: str) -> torch.device:
    """Return the named device; ``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(ranks.local_device(name))
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"no device {name!r}: write cpu, cuda or cuda:1")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device here: leave out --device, or write cpu")
    return device


def _model_options(spec: ModelSpec) -> None:
    defaults = models.options(spec.name)  # null is the default
    values = {k: defaults.get(k) if v is None else v for k, v in spec.options.items()}
    models.check_options(spec.name, values)


def _attack(recipe: Recipe) -> None:
    spec = recipe.attack
    used = (
        [spec.statistics] if isinstance(spec.statistics, str) else spec.statistics.values()
    )
    if recipe.objective.name == "trades" and spec.clean_start > 0:
        raise ValueError(
            "attack.clean_start: the divergence that trades climbs is flat at the clean "
            "image; set it to 0"
        )
    if recipe.objective.name == "trades" and spec.target != "none":
        raise ValueError(
            f"attack.target={spec.target}: trades climbs the divergence from the clean "
            "answer, which has no target; set it to none"
        )
    if "train" in used:
        raise ValueError(
            "attack.statistics: an attack must not move running statistics; "
            "write running or batch"
        )
