"""Docstrings and signatures of ours, as autodoc takes them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from inspect import Parameter, Signature, cleandoc, isclass, isfunction, signature, unwrap
from typing import Any

from api_pages import documented_objects
from models import plain
from sphinx.application import Sphinx

_FIELDS = {"Args": "param", "Raises": "raises"}


def sections(lines: list[str]) -> list[str]:
    """Turn ``Args:``, ``Returns:`` and ``Raises:`` into the fields of reStructuredText.

    >>> sections(["Add.", "", "Args:", "    x: A number,", "        or two.", "", "End."])
    ['Add.', '', ':param x: A number,', '    or two.', '', 'End.']
    """
    result: list[str] = []
    section = ""
    for line in lines:
        heading = re.fullmatch(r"(Args|Returns|Raises|Yields):", line)
        if heading:
            section = heading[1]
            if section not in _FIELDS:
                result.append(":yields:" if section == "Yields" else ":returns:")
        elif section in _FIELDS and (field := re.fullmatch(r"    (\w+): (.*)", line)):
            result.append(f":{_FIELDS[section]} {field[1]}: {field[2]}")
        elif section in _FIELDS and line.startswith("        "):
            result.append(line[4:])
        else:
            section = "" if line and not line.startswith(" ") else section
            result.append(line)
    return result


def simplify(app: Sphinx) -> None:
    """Simplify the types of everything that is documented, in this process alone."""
    owner: Any
    for thing in documented_objects():
        for owner in _owners(thing):
            functional = isfunction(owner)
            types = owner.__annotations__ if functional else _own_annotations(owner)
            for name, annotation in types.items():
                types[name] = plain(annotation)
        if isclass(thing):
            owner = thing
            with suppress(ValueError, TypeError):  # some have none
                owner.__signature__ = _plain_signature(signature(thing))


def _owners(thing: Any) -> Iterator[Any]:
    """Yield what has annotations: a function and what it wraps; a class and its methods."""
    yield thing
    if isclass(thing):
        for base in thing.__mro__:
            if base.__module__.startswith("advnorm"):
                yield base
                yield from filter(isfunction, vars(base).values())
    else:
        yield unwrap(thing)


def _own_annotations(owner: Any) -> dict[str, Any]:
    """Return the annotations of a class without those of its bases."""
    types: dict[str, Any] = getattr(owner, "__dict__", {}).get("__annotations__", {})
    return types


def _plain_signature(of: Signature) -> Signature:
    """Simplify the types, and write defaults that are no Python as ``...``."""
    parameters: list[Parameter] = [
        parameter.replace(
            annotation=plain(parameter.annotation),
            default=... if repr(parameter.default).startswith("<") else parameter.default,
        )
        if parameter.default is not Parameter.empty
        else parameter.replace(annotation=plain(parameter.annotation))
        for parameter in of.parameters.values()
    ]
    return of.replace(parameters=parameters)


def process(
    app: Sphinx, what: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    """Rewrite a docstring; drop what Python says of a named tuple's field, its number."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()
    lines[:] = sections(cleandoc("\n".join(lines)).split("\n")) if lines else lines
    if lines and lines[-1]:
        lines.append("")


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to autodoc."""
    app.connect("builder-inited", simplify)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
