"""Recipes in and out of YAML, changed by ``key=value``, compared; mistakes explained."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from advnorm.files import read_text
from advnorm.recipe.recipe import Recipe
from advnorm.recipe.values import RecipeError, Spec
from advnorm.safe_yaml import load
from advnorm.text import cut, shorten

MOST_MISTAKES = 20
"""Mistakes that are named; more are counted."""


def parse(values: Mapping[str, Any]) -> Recipe:
    """Validate plain values; every mistake is reported at once."""
    try:
        return Recipe.model_validate(dict(values))
    except ValidationError as error:
        lines = [_explain(details) for details in error.errors()[:MOST_MISTAKES]]
        more = error.error_count() - len(lines)
        lines += [f"and {more} more mistakes"] if more else []
        raise RecipeError("\n".join(lines)) from None


def from_yaml(text: str) -> Recipe:
    """Read a recipe written by :func:`to_yaml` or by hand."""
    try:
        values = load(text)
    except ValueError as error:
        raise RecipeError(f"the recipe cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise RecipeError("a recipe is a YAML mapping, such as 'epochs: 10'")
    return parse(values)


def to_yaml(recipe: Recipe) -> str:
    """Write a recipe in full, so that no default of a later version changes it."""
    text: str = yaml.safe_dump(plain(recipe.model_dump()), sort_keys=False)
    return text


def read(path: Path) -> Recipe:
    """Read a recipe file."""
    try:
        return from_yaml(read_text(path))
    except UnicodeDecodeError:
        raise RecipeError(f"{path} is not a text file: give a recipe in YAML") from None
    except RecipeError as error:
        raise RecipeError(f"{path}:\n{error}") from None


def override(recipe: Recipe, changes: Sequence[str]) -> Recipe:
    """Return ``recipe`` with each ``dotted.name=value`` changed.

    >>> override(Recipe(), ["threat.eps=8/255", "epochs=2"]).epochs
    2
    """
    values = plain(recipe.model_dump())
    for change in changes:
        path, value = assignment(change)
        _assign(values, path, value)
    return parse(values)


def assignment(change: str) -> tuple[list[str], Any]:
    """Read ``dotted.name=value``, the value as YAML.

    >>> assignment("threat.eps=0.1")
    (['threat', 'eps'], 0.1)
    """
    name, equals, text = change.partition("=")
    if not equals or not name:
        raise RecipeError(f"--set takes key=value, such as epochs=3, not {shorten(change)}")
    return name.strip().split("."), _value(change, text)


def differences(one: Recipe, other: Recipe) -> list[str]:
    """Name the keys in which two recipes differ, with both values.

    >>> differences(Recipe(epochs=2), Recipe(epochs=3))
    ['epochs: 2 -> 3']
    """
    left, right = _flatten(one.model_dump()), _flatten(other.model_dump())
    keys = [*left, *(key for key in right if key not in left)]
    return [
        f"{key}: {left.get(key)} -> {right.get(key)}"
        for key in keys
        if left.get(key) != right.get(key)
    ]


def plain(value: Any) -> Any:
    """Turn tuples into lists, so that a safe YAML writer takes the value."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _value(change: str, text: str) -> Any:
    try:
        return load(text)
    except ValueError as error:
        what = str(error).splitlines()[0]
        raise RecipeError(
            f"--set {cut(change)}: {what}; quote a text, and close brackets"
        ) from None


def _assign(values: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = values.get(part)
        values[part] = inner = dict(inner) if isinstance(inner, dict) else {}
        values = inner
    values[path[-1]] = value


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict)
        flat |= _flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _explain(details: ErrorDetails) -> str:
    """Say in one line which key is wrong and what to write instead."""
    path = [part if isinstance(part, str) else shorten(part) for part in details["loc"]]
    path = [cut(part, 80) for part in path]
    key = cut(".".join(path))
    if details["type"] == "extra_forbidden":
        known = _fields(path[:-1])
        close = get_close_matches(path[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{key}: no such key; {hint}There are: {', '.join(known)}"
    message = cut(details["msg"].removeprefix("Value error, "), 600)
    if details["type"] == "value_error" and isinstance(details["input"], Mapping):
        return f"{key}: {message}"  # about several settings, which it names
    return f"{key}: {message} (given: {shorten(details['input'])})"


def _fields(path: Sequence[str]) -> list[str]:
    """Return the keys of the part of a recipe that ``path`` leads to."""
    spec: type[BaseModel] = Recipe
    for part in path:
        if part in spec.model_fields:
            spec = _spec_of(spec.model_fields[part].annotation, path)
    return list(spec.model_fields)


def _spec_of(annotation: Any, path: Sequence[str]) -> type[BaseModel]:
    """Return the part of a recipe a field holds; of a schedule, the kind that was named."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    kinds: list[type[Spec]] = [kind for kind in get_args(annotation)]
    named = [kind for kind in kinds if kind.model_fields["kind"].default == path[-1]]
    return (named or kinds)[0]
