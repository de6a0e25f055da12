"""The pages of the API: every public name of every package, from its docstring."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isclass, isfunction, ismodule
from types import ModuleType
from typing import Any

from docstrings import data_doc, public_names, summary
from models import plain

import advnorm

FRONT = "advnorm"
PACKAGES = sorted(
    f"advnorm.{name}" for name in advnorm.__all__ if ismodule(getattr(advnorm, name))
)


@cache
def documented() -> dict[str, list[str]]:
    """Return the names that each module's page documents; each object has one place.

    The front door comes first, then the package that defines the object.
    """
    pages: dict[str, list[str]] = {module: [] for module in (FRONT, *PACKAGES)}
    seen: set[int] = set()
    for module in (FRONT, *PACKAGES):
        for name, thing in _things(module):
            elsewhere = _home(thing) not in (module, "") and module != FRONT
            if ismodule(thing) or id(thing) in seen or elsewhere:
                continue
            seen.add(id(thing))
            pages[module].append(name)
    return pages


@cache
def places() -> dict[int, str]:
    """Return the name under which each object is documented, by its ``id``."""
    named = {id(import_module(module)): module for module in (FRONT, *PACKAGES)}
    for module in PACKAGES:
        for _, thing in _things(module):
            if ismodule(thing):
                named[id(thing)] = thing.__name__
                for inner, value in _own(thing):
                    named.setdefault(id(value), f"{thing.__name__}.{inner}")
    for module, names in documented().items():
        for name in names:
            named[id(getattr(import_module(module), name))] = f"{module}.{name}"
    return named


def documented_objects() -> list[Any]:
    """Return the functions and classes of all pages, also of modules inside packages."""
    front = [
        getattr(import_module(module), name)
        for module, names in documented().items()
        for name in names
    ]
    inner = [
        value
        for module in PACKAGES
        for _, thing in _things(module)
        if ismodule(thing)
        for _, value in _own(thing)
    ]
    return [thing for thing in (*front, *inner) if isclass(thing) or isfunction(thing)]


def _things(module: str) -> Iterator[tuple[str, object]]:
    parent = import_module(module)
    for name in public_names(parent):
        yield name, getattr(parent, name)


def _own(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the functions and classes that a module of a package defines."""
    for name in public_names(module):
        thing = getattr(module, name)
        if getattr(thing, "__module__", None) == module.__name__:
            yield name, thing


def _home(thing: object) -> str:
    """Return the public package whose page an object belongs to; none for plain values."""
    if not (isclass(thing) or isfunction(thing)):
        return ""
    homes = [p for p in PACKAGES if f"{thing.__module__}.".startswith(f"{p}.")]
    for package in homes:
        if any(value is thing for _, value in _things(package)):
            return package
    return ""


def pages() -> dict[str, str]:
    """Return the text of each page, by its name without suffix."""
    return {
        "index": _index(),
        FRONT: _front(),
        **{module: _page(module) for module in PACKAGES},
    }


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n"


def _index() -> str:
    rows = [f"   * - :doc:`{FRONT} <{FRONT}>`\n     - {summary(advnorm.__doc__)}"]
    rows += [
        f"   * - :doc:`{name} <{name}>`\n     - {summary(import_module(name).__doc__)}"
        for name in PACKAGES
    ]
    names = "\n".join(f"   {name}" for name in (FRONT, *PACKAGES))
    table = "\n".join(rows).replace("\n", "\n")
    return (
        f"{_title('Python')}\n"
        "``import advnorm`` gives functions, threats and packages, imported when they are "
        "first used.\n\n"
        ".. list-table::\n   :header-rows: 1\n   :widths: auto\n\n"
        "   * - module\n     - what it holds\n"
        f"{_indent_continued(table)}\n\n"
        f".. toctree::\n   :hidden:\n\n{names}\n"
    )


def _indent_continued(table: str) -> str:
    """Indent the further lines of a cell as its first."""
    lines = table.split("\n")
    return "\n".join(
        line if line.startswith("   ") or not line else f"       {line}" for line in lines
    )


def _front() -> str:
    names = "\n".join(f"* :mod:`{name}`" for name in PACKAGES)
    return (
        f"{_title('advnorm')}\n.. automodule:: advnorm\n   :no-members:\n\n"
        f"{_entries(FRONT)}\n{_heading('Packages')}\n{names}\n"
    )


def _page(module: str) -> str:
    inner = [thing for _, thing in _things(module) if ismodule(thing)]
    parts = [
        _title(module),
        f".. automodule:: {module}\n   :no-members:\n",
        _entries(module),
        _elsewhere(module),
        *(
            f"{_heading(part.__name__)}\n.. automodule:: {part.__name__}\n"
            f"   :members: {', '.join(name for name, _ in _own(part))}\n"
            for part in inner
        ),
    ]
    return "\n".join(part for part in parts if part)


def _heading(text: str) -> str:
    return f"{text}\n{'-' * len(text)}\n"


def _entries(module: str) -> str:
    """Return functions, classes and data, each under a heading."""
    parent = import_module(module)
    functions, classes, data = [], [], []
    for name in documented()[module]:
        thing, path = getattr(parent, name), f"{module}.{name}"
        if isclass(thing):
            classes.append(f".. autoclass:: {path}\n   :members:\n   :show-inheritance:\n")
        elif isfunction(thing):
            functions.append(f".. autofunction:: {path}\n")
        else:
            data.append(_data(module, name, thing))
    groups = (("Functions", functions), ("Classes", classes), ("Names and types", data))
    return "\n".join(
        "\n".join([_heading(title), *entries]) for title, entries in groups if entries
    )


def _data(module: str, name: str, thing: object) -> str:
    doc = data_doc(module, name).replace("\n", "\n   ")
    kind = _kind(thing)
    return f".. py:data:: {name}\n\n   {doc}\n\n   {kind}\n"


def _kind(thing: object) -> str:
    """Say what a value is: a registry by its names, a type by its definition."""
    from advnorm.registry import Registry

    if isinstance(thing, Registry):
        names = ", ".join(f"``{name}``" for name in thing)
        return f"The registry of each {thing.kind}: {names}."
    if isinstance(thing, dict):
        return f"Keys: {', '.join(f'``{key}``' for key in thing)}."
    if isinstance(thing, frozenset | set):
        return f"Value: {', '.join(f'``{item}``' for item in sorted(thing))}."
    from sphinx.util.typing import stringify_annotation

    if isinstance(thing, tuple):
        return f"Value: ``{thing!r}``."
    definition = stringify_annotation(plain(thing), "smart").replace("~", "")
    return f"Definition: ``{definition}``."


def _elsewhere(module: str) -> str:
    """List what a package passes on from another one."""
    here = set(documented()[module])
    lines = [
        f"* :py:obj:`{name} <{places()[id(thing)]}>`"
        for name, thing in _things(module)
        if name not in here and not ismodule(thing) and id(thing) in places()
    ]
    return "\n".join([_heading("Also here"), *lines, ""]) if lines else ""
