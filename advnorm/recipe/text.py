"""Recipes in and out of YAML, changed by ``key=value``, compared; mistakes explained."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from advnorm.files import read_text
from advnorm.recipe.keys import (
    RENAMED,
    flatten,
    full_key,
    renamed_line,
    section_advice,
    section_fields,
)
from advnorm.recipe.recipe import Recipe
from advnorm.recipe.values import RecipeError
from advnorm.safe_yaml import load
from advnorm.text import cut, shorten

MOST_MISTAKES = 20
"""Mistakes that are named; more are counted."""
_OF_AN_EARLIER_VERSION = 3
"""So many renamed keys are not typed by hand: all of the recipe is an earlier version's."""
_SECTIONS = ("model_type", "model_attributes_type")


def parse(values: Mapping[str, Any]) -> Recipe:
    """Validate plain values; every mistake is reported at once."""
    try:
        return Recipe.model_validate(dict(values))
    except ValidationError as error:
        old = [key for key in map(_key, error.errors()) if key in RENAMED]
        if len(old) >= _OF_AN_EARLIER_VERSION:
            raise RecipeError(_earlier_version(old)) from None
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


def override(recipe: Recipe, changes: Sequence[str], section: str = "") -> Recipe:
    """Return ``recipe`` with each ``key=value`` changed, as ``--set`` does.

    A key may be shortened to its end: see :func:`~advnorm.recipe.keys.full_key`. In Python,
    :meth:`Recipe.replace` is checked by tools.

    >>> override(Recipe(), ["threat.eps=8/255", "lr=0.2"]).optimizer.lr
    0.2
    """
    values = plain(recipe.model_dump())
    for change in changes:
        path, value = assignment(change)
        _assign(values, full_key(".".join(path), section).split("."), value)
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
    left, right = flatten(one.model_dump()), flatten(other.model_dump())
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


def _key(details: ErrorDetails) -> str:
    """Return the key that a mistake is about, shortened where it is too long to print."""
    path = [part if isinstance(part, str) else shorten(part) for part in details["loc"]]
    return cut(".".join(cut(part, 80) for part in path))


def _explain(details: ErrorDetails) -> str:
    """Say in one line which key is wrong and what to write instead."""
    key = _key(details)
    if details["type"] == "extra_forbidden" and key in RENAMED:
        return renamed_line(key)
    if details["type"] == "extra_forbidden":
        *path, name = key.split(".")
        fields = section_fields(path)
        close = get_close_matches(name, fields, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{key}: no such key; {hint}There are: {', '.join(fields)}"
    if details["type"] in _SECTIONS and not isinstance(details["input"], Mapping):
        return section_advice(key, details["input"])
    message = cut(details["msg"].removeprefix("Value error, "), 600)
    if details["type"] == "value_error" and isinstance(details["input"], Mapping):
        return f"{key}: {message}"  # about several settings, which it names
    return f"{key}: {message} (given: {shorten(details['input'])})"


def _earlier_version(old: Sequence[str]) -> str:
    renamed = ", ".join(f"{key} is now {RENAMED[key]}" for key in old)
    return (
        "this recipe was written by an earlier version of advnorm: train the run again, "
        f"use it with that version, or rename its keys ({renamed})"
    )
