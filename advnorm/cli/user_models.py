"""Models that the user names on the command line: ``--set model.name=FILE.py:NAME``.

Only here does a command run a file of the user's: the name is read from the command line,
never from a recipe or a run folder.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advnorm.recipe import Recipe


def name_models(changes: Sequence[str]) -> list[str]:
    """Run the files that ``--set model.name=FILE.py:NAME`` names.

    Return the names of all models that are not advnorm's own.
    """
    from advnorm.models import add_model, is_file_model, is_user_model, load_user_model

    names = []
    for change in changes:
        key, _, value = change.partition("=")
        name = value.strip(" '\"")
        if key.strip() == "model.name" and is_file_model(name):
            add_model(load_user_model(name))
        if key.strip() == "model.name" and is_user_model(name):
            names.append(name)
    return names


def named_recipe(text: str, changes: Sequence[str]) -> "Recipe":
    """Return a recipe by its name or file, or of a model FILE.py:NAME, with changes.

    The options of the model that a recipe has are not those of one that takes its place.
    """
    from advnorm.models import add_model, is_file_model, is_user_model, load_user_model
    from advnorm.recipe import ModelSpec, Recipe, override
    from advnorm.recipes import find

    named = name_models(changes)
    if not is_file_model(text):
        recipe = find(text)
        replaced = named and not is_user_model(recipe.model.name)
        return override(recipe, ["model.options={}"] * bool(replaced) + list(changes))
    add_model(load_user_model(text))
    return override(Recipe(name=text, model=ModelSpec(name=text)), list(changes))


def use_named_model(recipe: "Recipe") -> "Recipe":
    """Return a run's recipe with the model that the user has named for it.

    A file may have moved: its digest tells whether it is the same. A model that was passed
    in Python has none.
    """
    from advnorm.models import MODELS, models_in_use
    from advnorm.recipe import ModelSpec

    spec, named = recipe.model, models_in_use()
    if spec.name in MODELS or spec.name in [model.name for model in named]:
        return recipe
    same = [model for model in named if spec.digest and model.digest == spec.digest]
    for model in same or named:
        return recipe.replace(model=ModelSpec(name=model.name))
    return recipe
