"""What a recipe says of a model of the user's own is checked when the model is built."""

from typing import Any

import torch
from torch import Tensor, nn

from advnorm import models, norms
from advnorm.evaluation.inputs import check_finite
from advnorm.model_state import eval_mode
from advnorm.norms import Norm, count_norms
from advnorm.recipe import ModelSpec, NormSpec, Recipe, RecipeError


class CountedNorm:
    """A norm that counts the layers that were built with it."""

    def __init__(self, norm: Norm) -> None:
        self.norm, self.built = norm, 0

    def __call__(self, features: int) -> nn.Module:
        """Return the next layer."""
        self.built += 1
        return self.norm(features)


def with_digest(recipe: Recipe) -> Recipe:
    """Return the recipe with the digest of its model's file, where it has none yet."""
    for model in models.models_in_use():
        if model.name == recipe.model.name and model.digest and not recipe.model.digest:
            return recipe.replace(model=ModelSpec(digest=model.digest))
    return recipe


def check_same_file(spec: ModelSpec) -> None:
    """Refuse the file of a model that is no longer the one that the run began with."""
    for model in models.models_in_use():
        if model.name == spec.name and model.digest and spec.digest:
            if model.digest == spec.digest:
                continue
            raise ValueError(
                f"{spec.name.rpartition(':')[0]} has changed since the run began (SHA-256 "
                f"{model.digest[:8]}..., then {spec.digest[:8]}...): put the file back as "
                "it was, or train anew"
            )


def convert_norms(spec: NormSpec, model: nn.Module) -> nn.Module:
    """Return the model with its batch norms converted to the recipe's norm."""
    try:
        return norms.convert(model, spec.name, options=spec.options)
    except (ValueError, NotImplementedError) as error:
        raise RecipeError(f"norm.apply=convert: {error}") from None


def check_norms(recipe: Recipe, norm: CountedNorm, model: nn.Module) -> None:
    """Refuse a model that ignores the recipe's norm: its results would bear a wrong name.

    A model that does not ask for the norm may have it by itself, with default options.
    """
    spec, built, counts = recipe.norm, norm.built, count_norms(model)
    if spec.where == "input" and sum(counts.values()) > 1:
        raise RecipeError(
            f"norm.where=input, but model {recipe.model.name!r} has norms of its own "
            f"({', '.join(sorted(counts))}): build it without them"
        )
    expected = set(count_norms(norm.norm(64)))
    same = expected <= set(counts) if expected else not counts
    same |= not expected and built > 0 and "batch" not in counts  # part of the model
    same |= spec.name == "group" and "layer" in counts  # one group, of few features
    if same and (built or not spec.options):
        return
    remedy = "set norm.apply=convert" if counts else "set norm.name=none"
    options = f" with {spec.options}" if same else ""
    raise RecipeError(
        f"model {recipe.model.name!r} does not have the norm of the recipe, "
        f"{spec.name}{options}, but {', '.join(sorted(counts)) or 'none'}: {remedy}, or "
        "build it from an argument norm"
    )


def check_eval_pass(model: nn.Module, images: Tensor, *, classes: int) -> None:
    """Refuse a model that returns no logits of all classes, or moves its statistics."""
    logits = fixed_statistics_pass(model, images)
    check_logits_of_classes(logits, rows=len(images), classes=classes)
    try:
        check_finite(logits)
    except ValueError as error:
        raise RecipeError(str(error)) from None


def check_logits_of_classes(logits: Any, *, rows: int, classes: int) -> None:
    """Refuse what is no tensor of logits, or has fewer than the classes."""
    if not isinstance(logits, Tensor):
        raise RecipeError(
            f"the model returns a {type(logits).__name__}, not a tensor of logits: return "
            "the logits alone"
        )
    if logits.ndim != 2 or len(logits) != rows or logits.shape[1] < classes:
        raise RecipeError(
            f"the model returns {tuple(logits.shape)} for {rows} images: return at "
            f"least {classes} logits per image, one per class (a function gets the number "
            "as its argument classes)"
        )


def fixed_statistics_pass(model: nn.Module, images: Tensor) -> Any:
    """Return what a model answers in evaluation; refuse one whose buffers change then."""
    before = {name: value.clone() for name, value in model.named_buffers()}
    with eval_mode(model), torch.no_grad():
        output = model(images)
    for name, value in model.named_buffers():
        if name in before and not torch.equal(value, before[name]):
            value.copy_(before[name])
            raise RecipeError(
                f"the model moves its statistics in evaluation (buffer {name!r}): update "
                "them only where self.training is true"
            )
    return output
