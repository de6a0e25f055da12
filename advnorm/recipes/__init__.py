"""Named recipes: documented functions, one file a data set."""

from pathlib import Path

from advnorm.recipe import Recipe, RecipeError, read
from advnorm.recipes import (
    cifar10,
    digits,
    mnist,
    mnist_certified,
    mnist_norms,
    two_domains,
)
from advnorm.recipes.registry import RECIPES

__all__ = [
    "RECIPES",
    "cifar10",
    "digits",
    "find",
    "mnist",
    "mnist_certified",
    "mnist_norms",
    "two_domains",
]


def find(name: str) -> Recipe:
    """Return a recipe by its name, or read it from a YAML file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if not path.is_file():
            raise RecipeError(f"there is no recipe file {name}")
        return read(path)
    return RECIPES[name]()
