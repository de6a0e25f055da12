"""A model and data that the user passes in Python, in place of the recipe's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from advnorm import data as sets
from advnorm import models
from advnorm.recipe import DataSpec, ModelSpec, Recipe


@contextmanager
def passed_in_python(
    recipe: Recipe, model: models.Source | str | None = None, data: Any = None
) -> Iterator[Recipe]:
    """Yield the recipe with the user's model and data, which it finds during the block.

    The recipe remembers the model's name and a digest of the data.
    """
    own = [] if model is None else [models.as_user_model(model)]
    for user_model in own:
        if user_model.name != recipe.model.name:
            same = models.is_user_model(recipe.model.name)
            options = recipe.model.options if same else {}
            spec = ModelSpec(name=user_model.name, options=options)
            recipe = recipe.replace(model=spec)
    user_data = None if data is None else sets.as_data_set(data)
    if user_data is not None:
        digest = recipe.data.digest or sets.digest_of(user_data)
        recipe = recipe.replace(data=DataSpec(name="python", digest=digest))
    with models.use_models(*own), sets.use_data(user_data):
        yield recipe
