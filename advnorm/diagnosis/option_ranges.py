"""The ranges of questions' options, and whether given ones are in them."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from advnorm.registry import options

GIVEN = ("threat", "progress")
"""What whoever asks gives beside the options."""


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers")
    return value


_Whole = Annotated[int, BeforeValidator(_number)]
_Real = Annotated[float, BeforeValidator(_number)]
Count = Annotated[_Whole, Field(ge=1)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]
Positive = Annotated[_Real, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[_Real, Field(ge=0, allow_inf_nan=False)]
Margin = Annotated[_Real, Field(ge=0, lt=1)]
"""Of two probabilities."""


def fitted(
    name: str, ask: Callable[..., object], given: Mapping[str, object]
) -> dict[str, Any]:
    """Return options in the types and ranges of a question's signature, or say why not."""
    found = {}
    for key, value in given.items():
        try:
            found[key] = _kinds(ask)[key].validate_python(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ").lower()
            raise ValueError(f"{name}.{key}={value}: {reason}") from None
    return found


@cache
def _kinds(ask: Callable[..., object]) -> dict[str, TypeAdapter[Any]]:
    hints = get_type_hints(ask, include_extras=True)
    known = (key for key in options(ask) if key not in GIVEN)
    return {key: TypeAdapter(hints[key]) for key in known}
