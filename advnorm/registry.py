"""Names chosen by strings: one registry a kind, and an unknown name says which exist."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from inspect import getdoc, signature
from typing import Generic, TypeVar, get_args

from advnorm.text import shorten

T = TypeVar("T")


def unknown(kind: str, name: str, choices: list[str]) -> ValueError:
    """Return the error for ``name``: the closest choice first, then all of them.

    >>> str(unknown("model", "mpl", ["cnn", "mlp"]))
    "no model 'mpl': did you mean 'mlp'? There are: cnn, mlp"
    """
    close = get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f": did you mean {close[0]!r}? There are: " if close else "; there are: "
    return ValueError(f"no {kind} {shorten(name)}{hint}{', '.join(sorted(choices))}")


class Registry(Generic[T]):
    """Maps names of one ``kind`` to functions.

    >>> norms = Registry("norm")
    >>> @norms.register("none")
    ... def none(features):
    ...     "No normalization."
    >>> norms["none"] is none, norms.summary("none")
    (True, 'No normalization.')
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enters its function under ``name``."""

        def enter(entry: T) -> T:
            assert name not in self._entries, f"two {self.kind}s are called {name!r}"
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise unknown(self.kind, name, list(self._entries))
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def summary(self, name: str) -> str:
        """Return the first line of the entry's docstring."""
        return (getdoc(self[name]) or "").partition("\n")[0]


def options(function: Callable[..., object]) -> dict[str, object]:
    """Return the keyword-only settings of ``function`` that have a default."""
    parameters = signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def bind(
    function: Callable[..., T], given: Mapping[str, object], *, what: str
) -> Callable[..., T]:
    """Fix settings by name; an unknown one says which exist.

    >>> def group(*, groups=32): ...
    >>> bind(group, {"group": 8}, what="setting of norm 'group'")
    Traceback (most recent call last):
    ValueError: no setting of norm 'group' 'group': did you mean 'groups'? There are: groups
    """
    known = options(function)
    for name, value in given.items():
        if name not in known:
            raise unknown(what, name, list(known))
        if not (value is None and _optional(function, name)) and not _fits(
            value, known[name]
        ):
            kind = "number" if known[name] is None else type(known[name]).__name__
            raise ValueError(f"{what} {name!r}: {shorten(value)} is not a {kind}")
    return partial(function, **given)


def _fits(value: object, default: object) -> bool:
    """Tell whether a value is of the default's type; a whole number is a fine float."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if default is None:
        return value is None or isinstance(value, int | float)
    wanted = (int, float) if isinstance(default, float) else type(default)
    return isinstance(value, wanted)


def _optional(function: Callable[..., object], name: str) -> bool:
    """Tell whether a setting may be none, by its annotation."""
    return type(None) in get_args(signature(function).parameters[name].annotation)
