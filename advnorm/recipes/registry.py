"""The named recipes."""

from collections.abc import Callable

from advnorm.recipe import Recipe
from advnorm.registry import Registry

RECIPES: Registry[Callable[[], Recipe]] = Registry("recipe")
"""Each returns its recipe; the docstring has source, command, cost and result."""
