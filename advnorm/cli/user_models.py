"""Models that the user names on the command line: ``--set model.name=FILE.py:NAME``.

Only here does a command run a file of the user's: the name is read from the command line,
never from a recipe or a run folder.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advnorm.recipe import Recipe


def is_model(text: str) -> bool:
    """Return whether a text names a model, and not a run folder or a recipe."""
    if ":" not in text and not text.endswith(".py"):
        return False
    from advnorm.models import PACKAGES, is_file_model

    package, colon, _ = text.partition(":")
    if is_file_model(text):
        return not Path(text).is_dir()
    return bool(colon) and package in PACKAGES and not Path(text).exists()


@contextmanager
def explained_code() -> Iterator[None]:
    """Name the line of the user's file that raises an error, also long after its start."""
    try:
        yield
    except Exception as error:
        if "advnorm.models" not in sys.modules:  # then no file was run
            raise
        from advnorm.models import models_in_use, place_in_files
        from advnorm.text import on_one_line

        place = place_in_files(error, [model.name for model in models_in_use()])
        if not place:
            raise
        raise ValueError(f"{place}: {on_one_line(error)}; correct the file") from error


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
    """Return a recipe by its name or file, or of a model of the user's, with changes.

    The options of the model that a recipe has are not those of one that takes its place.
    """
    from advnorm.models import add_model, is_file_model, is_user_model, load_user_model
    from advnorm.recipe import ModelSpec, Recipe, override
    from advnorm.recipes import find

    named = name_models(changes)
    if not is_model(text):
        recipe = find(text)
        replaced = named and not is_user_model(recipe.model.name)
        return override(recipe, ["model.options={}"] * bool(replaced) + list(changes))
    if is_file_model(text):
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
