"""Names chosen by strings, one registry per kind; and the options of what they name."""

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, partial
from inspect import getdoc, isclass, signature
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from advnorm.text import shorten

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def unknown(kind: str, name: str, choices: list[str]) -> ValueError:
    """Return the error for ``name``: the closest choice first, then all of them.

    A choice of the same letters in another order is the closest.

    >>> str(unknown("model", "mpl", ["cnn", "mlp"]))
    "no model 'mpl': did you mean 'mlp'? There are: cnn, mlp"
    """
    close = [choice for choice in choices if sorted(choice) == sorted(name)]
    close = close or get_close_matches(name, choices, n=1, cutoff=0.5)
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


def options(
    function: Callable[..., object], *, without: Collection[str] = ()
) -> dict[str, object]:
    """Return the parameters of ``function`` that have a default: its options.

    ``without`` names parameters that are not options, because the caller sets them.
    """
    parameters = signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return {name: value for name, value in defaults.items() if name not in without}


def validate(
    function: Callable[..., object],
    values: Mapping[str, object],
    *,
    owner: str,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Return options of ``function`` in the types and ranges of its annotations.

    All options that a user sets by name are checked here. A whole number is a valid float,
    and a list a valid tuple; text and booleans are no numbers. Ranges are those of
    ``Annotated[int, Field(ge=1)]``, choices those of ``Literal``. An option that is unknown
    or has a wrong value is refused in one sentence that names it and its ``owner``.

    >>> def group(*, groups: int = 32): ...
    >>> validate(group, {"groups": 8}, owner="norm 'group'")
    {'groups': 8}
    >>> validate(group, {"group": 8}, owner="norm 'group'")
    Traceback (most recent call last):
    ValueError: no option of norm 'group' called 'group': did you mean 'groups'? There are: groups
    >>> validate(group, {"groups": 2.5}, owner="norm 'group'")
    Traceback (most recent call last):
    ValueError: option 'groups' of norm 'group': 2.5 should be a valid integer
    """  # noqa: E501
    from pydantic import ValidationError

    choices, result = options(function, without=without), {}
    for name, value in values.items():
        if not choices:
            raise ValueError(f"{owner} has no options: remove {shorten(name)}")
        if name not in choices:
            raise unknown(f"option of {owner} called", name, list(choices))
        try:
            result[name] = _type(function, name).validate_python(
                _tuples(value), strict=True
            )
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Input ")
            raise ValueError(
                f"option {name!r} of {owner}: {shorten(value)} {reason}"
            ) from None
    return result


def bind(
    function: Callable[..., T],
    values: Mapping[str, object],
    *,
    owner: str,
    without: Collection[str] = (),
) -> Callable[..., T]:
    """Return ``function`` with some of its options set, after :func:`validate`."""
    return partial(function, **validate(function, values, owner=owner, without=without))


@cache
def _type(function: Callable[..., object], name: str) -> "TypeAdapter[Any]":
    """Return what checks the values of an option, by the annotation of the function."""
    from pydantic import TypeAdapter

    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    hints = get_type_hints(inner.__init__ if isclass(inner) else inner, include_extras=True)
    return TypeAdapter(hints.get(name, Any))


def _tuples(value: object) -> object:
    """Return lists as tuples, also inside of each other: YAML has no tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
