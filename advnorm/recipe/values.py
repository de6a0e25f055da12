"""The types of recipe values; ``8/255`` is a number."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from advnorm.numbers import parse_number

Mode = Literal["train", "batch", "running"]
"""Whose statistics a norm uses; ``train`` also moves the running ones."""


class RecipeError(ValueError):
    """A recipe that cannot be run; the text has a line for each reason."""


@dataclass(frozen=True)
class Unit:
    """The unit of a number, for the reference: ``Annotated[Count, Unit("epochs")]``."""

    name: str


LARGEST = 10**15
"""Whole numbers beyond it are no longer exact as floats, nor of any use here."""


def counted(value: object) -> object:
    """Refuse ``true`` and ``false``, which Python takes for 1 and 0, and huge numbers."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number: write one, such as 1")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("the number is too large: write one up to 10**15")
    return value


def number(value: object) -> object:
    """Turn ``"8.8/255"`` and ``"1e-3"`` into a float; leave the rest to the type check.

    >>> number("8/255") == 8 / 255, number("8.8/255") == 8.8 / 255
    (True, True)
    """
    if not isinstance(value, str):
        return counted(value)
    return parse_number(value)


def option(value: object) -> object:
    """Turn ``"1/100"`` and ``"1e-3"`` into a float; any other text stays text."""
    if not isinstance(value, str):
        return value if isinstance(value, bool) else counted(value)
    try:
        return number(value)
    except ValueError:
        return value


def sequence(value: object) -> object:
    """Turn a single number into a list of one."""
    single = isinstance(value, str | float | int) and not isinstance(value, bool)
    return (value,) if single else value


def layer_names(value: object) -> object:
    """Turn whole numbers, which name the layers of a sequence, into names.

    >>> layer_names({0: "identity", "hidden.1": "tanh"})
    {'0': 'identity', 'hidden.1': 'tanh'}
    """
    if not isinstance(value, dict):
        return value
    for key in value:
        if isinstance(key, float):
            raise ValueError(
                f"{key} is a number: write the name of a layer in quotes, such as '1.10'"
            )
    whole = {key: str(key) for key in value if type(key) is int}
    return {whole.get(key, key): name for key, name in value.items()}


Option = Annotated[bool | int | float | str | None, BeforeValidator(option)]
"""An argument of a norm or a model; ``1/100`` is a number."""
Number = Annotated[float, BeforeValidator(number)]
"""A number; ``8/255`` is one."""
Factor = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
"""A finite number from 0 on."""
Positive = Annotated[float, BeforeValidator(number), Field(gt=0, allow_inf_nan=False)]
"""A finite number above 0."""
Share = Annotated[float, BeforeValidator(number), Field(ge=0, le=1)]
"""A number from 0 to 1."""
Whole = Annotated[int, BeforeValidator(counted)]
Count = Annotated[Whole, Field(ge=1)]
"""A whole number from 1 on."""
Epochs = Annotated[Factor, Unit("epochs")]
PixelDistance = Annotated[Positive, Unit("pixel values")]
"""A radius or a step in the units of the images, under the norm of the ball."""
Samples = Annotated[Count, Unit("samples")]


class Spec(BaseModel):
    """A frozen section of a recipe; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
