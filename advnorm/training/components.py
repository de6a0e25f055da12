"""Builds data, model, norm, objective, gradient rule and optimizer from a recipe."""

from pathlib import Path

import torch
from torch import nn

from advnorm import data as sets
from advnorm import models
from advnorm.gradients import GRADIENTS, GradientRule
from advnorm.models import PerImageStandardize, Standardize, TiledLinear
from advnorm.norms import NORMS, Norm, SelectiveNorm, norm_parameters
from advnorm.objectives import OBJECTIVES, Objective
from advnorm.recipe import (
    Constant,
    ModelSpec,
    Recipe,
    RecipeError,
    ScheduleSpec,
    largest,
)
from advnorm.records import Run
from advnorm.registry import bind, options
from advnorm.schedules import Schedule
from advnorm.threat import THREATS, Threat
from advnorm.training import checkpoints
from advnorm.training.state import MismatchError, restore
from advnorm.training.user_model_checks import (
    CountedNorm,
    check_norms,
    check_same_file,
    convert_norms,
)


def load_data(recipe: Recipe, *, root: Path | None) -> sets.DataSet:
    """Read the recipe's data, and refuse threat bounds that do not contain it."""
    spec = recipe.data
    sets.check_digest(spec.name, spec.digest)
    data = sets.load(
        spec.name,
        root=root,
        size=spec.size,
        resample=spec.resample,
        validation=spec.validation,
        seed=recipe.seed,
        workers=spec.workers,
    )
    if spec.classes is not None:
        data = sets.select(data, classes=spec.classes)
    if spec.train is not None or spec.test is not None:
        data = sets.subset(data, train=spec.train, test=spec.test, seed=recipe.seed)
    (low, high), (lower, upper) = data.bounds, recipe.threat.bounds
    if low < lower or high > upper:
        raise RecipeError(
            f"{spec.name} has values in [{low:g}, {high:g}], outside of threat.bounds "
            f"[{lower:g}, {upper:g}]: set threat.bounds=[{_yaml(low)}, {_yaml(high)}]"
        )
    return data


def build_model(recipe: Recipe, data: sets.DataSet) -> nn.Module:
    """Build the recipe's model; standardization is its first layer."""
    model, norm = assemble_model(recipe, data)
    if recipe.norm.apply == "convert":
        return convert_norms(recipe.norm, model)
    if models.is_user_model(recipe.model.name):
        check_norms(recipe, norm, model)
    return model


def assemble_model(recipe: Recipe, data: sets.DataSet) -> tuple[nn.Module, CountedNorm]:
    """Return the model, whose norms are not yet checked, and the norm that built it."""
    spec, where = recipe.model, recipe.norm.where
    check_same_file(spec)
    converts = recipe.norm.apply == "convert"
    norm = CountedNorm(NORMS["batch"]() if converts else build_norm(recipe))
    first = _first_layer(spec, data)
    inner: Norm = norm
    if where == "input":
        first = nn.Sequential(first or nn.Identity(), norm(data.shape[0]))
        inner = NORMS["none"]()
    elif where != "all":
        inner = SelectiveNorm(norm, where)
    model = models.build(
        spec.name,
        shape=data.shape,
        classes=len(data.classes),
        norm=inner,
        standardize=first,
        options={k: v for k, v in spec.options.items() if v is not None},
    )
    if isinstance(inner, SelectiveNorm):
        inner.check()
    return model, norm


def build_norm(recipe: Recipe) -> Norm:
    """Build the recipe's norm, after checking its options."""
    name = recipe.norm.name
    norm: Norm = bind(NORMS[name], recipe.norm.options, owner=f"norm {name!r}")()
    return norm


def build_objective(recipe: Recipe) -> Objective:
    """Return the recipe's objective with its settings."""
    name = recipe.objective.name
    owner = f"objective {name!r}"
    return bind(OBJECTIVES[name], recipe.objective.settings(), owner=owner)


def build_gradient_rule(recipe: Recipe) -> GradientRule:
    """Return the recipe's gradient rule with its settings."""
    name = recipe.gradient.name
    owner = f"gradient rule {name!r}"
    return bind(GRADIENTS[name], recipe.gradient.settings(), owner=owner)


def weight_schedules(recipe: Recipe) -> dict[str, Schedule]:
    """Return the objective's weights that have a schedule, as functions of the epoch."""
    return {
        name: _scaled(schedule.build(), base)
        for name, (base, schedule) in _weights(recipe).items()
        if schedule != Constant()
    }


def largest_weights(recipe: Recipe) -> dict[str, float]:
    """Return the largest value that each weight of the objective takes in training."""
    return {
        name: base * largest(schedule, recipe.epochs)
        for name, (base, schedule) in _weights(recipe).items()
    }


def _weights(recipe: Recipe) -> dict[str, tuple[float, ScheduleSpec]]:
    """Return the base value and the schedule of each weight that the objective has."""
    spec, weights = recipe.objective, dict[str, tuple[float, ScheduleSpec]]()
    values = options(OBJECTIVES[spec.name])
    for name in ("gamma", "beta", "kappa"):
        schedule: ScheduleSpec = getattr(spec, f"{name}_schedule")
        if name in values:
            weights[name] = (spec.settings().get(name, values[name]), schedule)
        elif schedule != Constant():
            raise ValueError(f"objective.{name}_schedule: {spec.name!r} has no {name}")
    return weights


def evaluation_threats(recipe: Recipe) -> list[Threat]:
    """Return the evaluation's threats; by default at half the radius and at the radius."""
    spec, own = recipe.evaluation, recipe.threat
    if spec.threat.norm not in (None, own.norm) and not spec.threat.eps:
        raise ValueError(
            f"evaluation.threat.norm={spec.threat.norm} is not the norm that the recipe "
            f"has a radius for ({own.norm}): give evaluation.threat.eps too"
        )
    if not spec.threat.eps:
        whole = own.build()
        return list(dict.fromkeys([whole.scaled(0.5), whole]))
    kind = THREATS[spec.threat.norm or own.norm]
    return [kind(eps, own.bounds) for eps in sorted(spec.threat.eps)]


def build_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Build the recipe's optimizer; parameters that it does not train are frozen."""
    spec = recipe.optimizer
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RecipeError(
            f"model {recipe.model.name!r} has no parameters to train: give it some, with "
            "requires_grad"
        )
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    trained = set(norm_parameters(model)) if spec.parameters == "norms" else None
    if trained is not None and not trained:
        raise RecipeError(
            "optimizer.parameters=norms, but the model's norms have no parameters"
        )
    for parameter in model.parameters():
        if trained is not None and parameter not in trained:
            parameter.requires_grad_(False)
            continue
        decay = spec.weight_decay if parameter.ndim > 1 or spec.decay_norms else 0.0
        factor = spec.scalar_lr_factor if parameter.numel() == 1 else 1.0
        groups.setdefault((decay, factor), []).append(parameter)
    settings = [
        {"params": parameters, "weight_decay": decay, "factor": factor}
        for (decay, factor), parameters in groups.items()
    ]
    if any(isinstance(layer, TiledLinear) for layer in model.modules()):
        _check_tiles(recipe)
    if spec.name == "adam":
        return torch.optim.Adam(settings, lr=spec.lr, fused=True)
    if spec.name == "rmsprop":
        return torch.optim.RMSprop(
            settings, lr=spec.lr, alpha=0.9, eps=1.0, momentum=spec.momentum
        )
    return torch.optim.SGD(
        settings,
        lr=spec.lr,
        momentum=spec.momentum,
        nesterov=spec.nesterov,
        fused=True,
    )


def _check_tiles(recipe: Recipe) -> None:
    """Refuse a tiled layer where it would not train exactly as a plain one."""
    name = recipe.optimizer.name
    if name != "sgd":
        raise RecipeError(
            f"the model's option tile is exact under sgd, not under {name}: leave it out"
        )
    if recipe.objective.name != "standard" or recipe.validation.robust != "pgd":
        raise RecipeError(
            "the model's option tile is for objective.name=standard and validation.robust="
            "pgd: attacked images are not of tiles, and bounds are of plain layers"
        )


def load_initial_weights(path: str, model: nn.Module) -> None:
    """Load the best weights of another run into ``model``."""
    run, warnings = Run.open(Path(path)), list[str]()
    checkpoint = checkpoints.load(run.checkpoints, "best", warnings=warnings)
    if checkpoint is None:
        raise FileNotFoundError(
            f"init_from: {path} has no whole best checkpoint: train it first"
        )
    try:
        restore(checkpoint.tensors, model, None)
    except MismatchError as error:
        raise RecipeError(
            f"init_from: the weights of {path} are of another model ({error})"
        ) from None


def _scaled(schedule: Schedule, base: float) -> Schedule:
    return lambda epoch: base * schedule(epoch)


def _first_layer(spec: ModelSpec, data: sets.DataSet) -> nn.Module | None:
    if spec.standardize == "data":
        mean, std = data.moments()
        return Standardize(mean.tolist(), std.tolist())
    return PerImageStandardize() if spec.standardize == "per_image" else None


def _yaml(value: float) -> str:
    return f"{value:g}".replace("inf", ".inf")
