"""Checks that the parts of a recipe exist and fit together, before anything is loaded."""

from collections.abc import Callable, Sequence

from advnorm import data as sets
from advnorm import models, ranks
from advnorm.bounds.box import refuse_uncertified
from advnorm.evaluation import check_radius, parse_conditions
from advnorm.gradients import check_options, perturbs_statistics
from advnorm.objectives import CERTIFIED, check_combination, check_weights
from advnorm.recipe import ModelSpec, Recipe, RecipeError, largest
from advnorm.training import components


def check_recipe(recipe: Recipe) -> None:
    """Check every name and combination of a recipe; report all mistakes at once."""
    lookups: list[Callable[[], object]] = [
        lambda: sets.DATA[recipe.data.name.partition(":")[0]],
        lambda: sets.AUGMENTATIONS[recipe.data.augment],
        lambda: _check_model_options(recipe.model),
        lambda: components.build_norm(recipe),
        lambda: parse_conditions(recipe.evaluation.conditions, [], recipe.threat.bounds),
        lambda: recipe.threat.build(),
        lambda: check_schedule(recipe),
        lambda: components.evaluation_threats(recipe),
        lambda: _check_attack(recipe),
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
        lambda: _check_norm(recipe),
        lambda: _check_certified(recipe),
        lambda: _check_ranks(recipe),
        lambda: _check_monitor(recipe),
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
    """Refuse a schedule whose largest eps exceeds the distance of any two images."""
    threat, factor = recipe.threat.build(), largest(recipe.threat.schedule, recipe.epochs)
    if factor <= 1:
        return
    try:
        widest = threat.scaled(factor)
        if shape is not None:
            check_radius(widest, shape)
    except ValueError:
        raise RecipeError(
            f"threat.schedule: eps would reach {threat.eps * factor:g}, further than any "
            "two images are apart; lower threat.eps or the schedule"
        ) from None


def pieces_of(recipe: Recipe, batch: int | None = None) -> int:
    """Return the number of parts that a batch passes in, one after the other."""
    return recipe.optimizer.pieces(batch or recipe.batch_size, ranks.size())


def check_gradient_rule(recipe: Recipe, batch: int) -> None:
    """Refuse a gradient rule that does not fit the objective, ranks and batch size."""
    pieces, together = pieces_of(recipe, batch), recipe.optimizer.together
    if together and batch % (together * ranks.size()):
        raise ValueError(
            f"optimizer.together={together} does not divide a batch of {batch} samples "
            f"{'on each rank ' * (ranks.size() > 1)}equally: change one of them"
        )
    if pieces > 1 and batch % (pieces * ranks.size()):
        raise ValueError(
            f"optimizer.accumulate={pieces} does not divide a batch of {batch} samples "
            f"{'on each rank ' * (ranks.size() > 1)}equally: change one of them"
        )
    if perturbs_statistics(recipe.gradient.name):
        _check_passes(recipe)
        _check_groups(recipe, batch // pieces)


def _check_model_options(spec: ModelSpec) -> None:
    """Refuse options that the model does not have; null means the default."""
    defaults = models.options(spec.name)  # null is the default
    values = {k: defaults.get(k) if v is None else v for k, v in spec.options.items()}
    models.check_options(spec.name, values)


def _check_attack(recipe: Recipe) -> None:
    """Refuse settings of the training attack that contradict the objective."""
    spec = recipe.attack
    used = (
        [spec.statistics] if isinstance(spec.statistics, str) else spec.statistics.values()
    )
    if recipe.objective.name == "trades" and spec.clean_start > 0:
        raise ValueError(
            "attack.clean_start: the divergence that trades maximizes is flat at the clean "
            "image; set it to 0"
        )
    if recipe.objective.name == "trades" and spec.target != "none":
        raise ValueError(
            f"attack.target={spec.target}: trades maximizes the divergence from the clean "
            "answer, which has no target; set it to none"
        )
    if "train" in used:
        raise ValueError(
            "attack.statistics: an attack must not move running statistics; "
            "write running or batch"
        )


def _clean_rows(recipe: Recipe) -> int | None:
    """Return the number of clean images in one forward pass of one rank."""
    share = recipe.objective.clean_share
    if share is None:
        return None
    rows = recipe.batch_size // (pieces_of(recipe) * ranks.size())
    clean = round(share * rows)
    if share and not clean:
        raise ValueError(
            f"objective.clean_share={share:g} leaves no clean image of the {rows} that "
            "pass together: raise it or batch_size, or lower optimizer.accumulate"
        )
    return clean


def _check_certified(recipe: Recipe) -> None:
    """Refuse what certified training cannot do."""
    spec = recipe.validation
    if spec.eps is not None:
        recipe.threat.build().with_eps(spec.eps)
    if recipe.objective.name not in CERTIFIED:
        return
    refuse_uncertified(recipe.threat.build())
    if recipe.compile is True:
        raise ValueError(
            f"compile: {recipe.objective.name!r} bounds the traced graph, so that there is "
            "nothing to compile; leave it out"
        )
    for name in ("mixup", "label_smoothing"):
        if getattr(recipe.data, name):
            raise ValueError(
                f"data.{name}: {recipe.objective.name!r} bounds the margins of one label, "
                "and mixed labels have none; set it to 0"
            )


def _check_norm(recipe: Recipe) -> None:
    """Refuse a norm that is never updated, or is nowhere."""
    if recipe.norm.freeze_epochs >= recipe.epochs:
        raise ValueError(
            f"norm.freeze_epochs={recipe.norm.freeze_epochs}: some of the {recipe.epochs} "
            "epochs must move the running statistics first"
        )
    if recipe.norm.where == ():
        raise ValueError(
            "norm.where names no place: write all, input or places, or norm none"
        )


def _check_ranks(recipe: Recipe) -> None:
    """Refuse a batch that cannot be sharded evenly over the ranks."""
    count, share = ranks.size(), recipe.objective.clean_share
    if recipe.batch_size < count:
        raise ValueError(f"batch_size={recipe.batch_size} is less than the {count} ranks")
    part = recipe.batch_size // pieces_of(recipe)
    clean = part if share is None else round(share * part)
    if clean != part and (clean % count or part % count):
        raise ValueError(
            f"objective.clean_share leaves {clean} clean images in a batch of {part}: with "
            f"{count} ranks, both must divide by {count}"
        )


def _check_passes(recipe: Recipe) -> None:
    """Refuse what cannot be combined with perturbed statistics."""
    rule, objective = recipe.gradient.name, recipe.objective.name
    if recipe.compile is True:
        raise ValueError(
            f"gradient.name={rule} replaces the batch norms' passes step by step, which "
            "torch.compile cannot follow: set compile=false"
        )
    if objective in CERTIFIED:
        raise ValueError(
            f"gradient.name={rule} perturbs the batch norms' passes, and objective "
            f"{objective!r} bounds the model without them: use plain or sam"
        )


def _check_groups(recipe: Recipe, batch: int) -> None:
    """Refuse groups of the second pass that are not equally large."""
    spec = recipe.gradient
    unchecked = ("rho", "detached")
    options = {k: value for k, value in spec.settings().items() if k not in unchecked}
    check_options(**options, batch_size=batch)
    second, groups, count = spec.samples or batch, spec.groups or 1, ranks.size()
    uneven = batch % count or second % (groups * count)
    if (groups > 1 or second < batch) and uneven:
        raise ValueError(
            f"{second} of {batch} samples in {groups} groups cannot be sharded over "
            f"{count} ranks equally: change batch_size, gradient.samples or gradient.groups"
        )
    share = recipe.objective.clean_share
    clean = (second if share is None else round(share * second)) // count
    if clean % groups:
        raise ValueError(
            f"gradient.groups={groups} does not divide the {clean} clean images that "
            f"objective.clean_share leaves in the second pass{' of a rank' * (count > 1)}: "
            "change one of them"
        )


def _check_monitor(recipe: Recipe) -> None:
    """Refuse what the monitor cannot measure in this run."""
    questions = set(recipe.monitor.questions)
    if recipe.compile is True and questions & {"moments", "wasserstein"}:
        raise ValueError(
            "monitor.questions: moments and wasserstein look at the features of a step, "
            "which torch.compile hides; leave them out, or set compile=false"
        )
    if "hessian" in questions and ranks.size() > 1 and recipe.norm.options.get("sync"):
        raise ValueError(
            "monitor.questions: hessian is computed on rank 0 only, and norms with sync "
            "need all ranks; leave out one of them"
        )
    rows = recipe.batch_size // pieces_of(recipe)
    if questions & {"moments", "wasserstein"} and rows < 2 * ranks.size():
        raise ValueError(
            "monitor.questions: moments need at least 2 samples on each rank, in each part "
            f"of a batch: {recipe.batch_size} samples are too few"
        )
