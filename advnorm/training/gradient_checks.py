"""Whether a recipe's gradient rule fits to its batches, objective and ranks."""

from advnorm import ranks
from advnorm.gradients import check_options, perturbs_statistics
from advnorm.objectives import CERTIFIED
from advnorm.recipe import Recipe


def check_gradient_rule(recipe: Recipe, batch: int) -> None:
    """Refuse a gradient rule that cannot work on batches of so many samples."""
    pieces = recipe.optimizer.accumulate
    if pieces > 1 and batch % (pieces * ranks.size()):
        raise ValueError(
            f"optimizer.accumulate={pieces} does not divide a batch of {batch} samples "
            f"{'on each rank ' * (ranks.size() > 1)}equally: change one of them"
        )
    if perturbs_statistics(recipe.gradient.name):
        _passes(recipe)
        _groups(recipe, batch // pieces)


def _passes(recipe: Recipe) -> None:
    rule, objective = recipe.gradient.name, recipe.objective.name
    if recipe.compile:
        raise ValueError(
            f"gradient.name={rule} replaces the batch norms' passes step by step, which "
            "torch.compile cannot follow: set compile=false"
        )
    if objective in CERTIFIED:
        raise ValueError(
            f"gradient.name={rule} perturbs the batch norms' passes, and objective "
            f"{objective!r} bounds the model without them: use plain or sam"
        )


def _groups(recipe: Recipe, batch: int) -> None:
    spec = recipe.gradient
    given = {key: value for key, value in spec.settings().items() if key != "rho"}
    check_options(**given, batch_size=batch)
    second, groups, count = spec.samples or batch, spec.groups or 1, ranks.size()
    uneven = batch % count or second % (groups * count)
    if (groups > 1 or second < batch) and uneven:
        raise ValueError(
            f"{second} of {batch} samples in {groups} groups cannot be dealt out to "
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
