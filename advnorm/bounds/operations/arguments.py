"""Which arguments of a function, and which settings of a layer, the rules cover.

An argument may change what a function computes: ``sum(dtype=torch.int8)`` rounds, and
``div(rounding_mode="floor")`` has steps. So an entry lists the arguments in torch's order,
each with the values that its rules cover; every other argument or value is refused by name.

A layer's settings are attributes, which may be set to anything after it was built: to
values that no rule covers, that its ``forward`` ignores, or that contradict its weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

Accepts = Callable[[Any], bool]


@dataclass(frozen=True)
class ComputedArgument:
    """Stands for an argument that is computed in ``forward``."""

    kind: str
    """``"size"``, ``"constant"``, or ``"images"`` where it depends on them."""


@dataclass(frozen=True)
class Argument:
    """One argument of a function, and the values of it that the rule covers."""

    name: str
    accepts: Accepts
    wanted: str
    """Those values in words."""
    by_name: bool = False
    """Torch takes it by name alone."""


class LayerSetting(NamedTuple):
    """A setting, whether a layer has it as the rules understand it, and that in words."""

    name: str
    fits: Callable[[Any], bool]
    wanted: str


def bind(
    name: str,
    arguments: Sequence[Argument],
    where: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments behind the tensor by name; refuse what no rule reads.

    ``args`` and ``kwargs`` have a :class:`ComputedArgument` for what ``forward`` computes.
    """
    in_order = [argument for argument in arguments if not argument.by_name]
    by_name = {argument.name: argument for argument in arguments}

    def refused(argument: str, value: Any, wanted: str = "") -> NotImplementedError:
        known = ", ".join(by_name) or "none"
        reads = f"its rule is for {argument} = {wanted}" if wanted else ""
        reads = reads or f"its rule does not read it (it reads {known})"
        what = (
            f"a {value.kind} value"
            if isinstance(value, ComputedArgument)
            else repr(value)[:80]
        )
        return NotImplementedError(
            f"no certificate for {where!r} ({name}) with the argument {argument}={what}: "
            f"{reads}; leave it out, or compute the same in layers that have a rule"
        )

    if len(args) > len(in_order):
        raise refused(f"number {len(in_order) + 2}", args[len(in_order)])
    bound = {a.name: value for a, value in zip(in_order, args, strict=False)}
    for argument, value in kwargs.items():
        if argument not in by_name or argument in bound:
            raise refused(argument, value)
        bound[argument] = value
    for argument, value in bound.items():
        if not by_name[argument].accepts(value):
            raise refused(argument, value, by_name[argument].wanted)
    return bound


def is_int(value: Any) -> bool:
    """Tell whether a value is a whole number, or a size."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (isinstance(value, ComputedArgument) and value.kind == "size")


def is_ints(value: Any) -> bool:
    """Tell whether a value is one or more whole numbers."""
    if isinstance(value, tuple | list):
        return all(map(is_int, value))
    return is_int(value)


def is_fixed_ints(value: Any) -> bool:
    """Tell whether a value is whole numbers that no shape decides."""
    return is_ints(value) and not isinstance(value, ComputedArgument)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def is_operand(value: Any) -> bool:
    """Tell whether a value can be added or multiplied."""
    return isinstance(value, ComputedArgument | bool) or is_number(value)


def is_index(value: Any) -> bool:
    """Tell whether a value picks entries, whatever the images are."""
    if isinstance(value, tuple):
        return all(map(is_index, value))
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return all(part is None or is_int(part) for part in parts)
    if isinstance(value, list):
        return all(isinstance(item, bool) or is_int(item) for item in value)
    if isinstance(value, ComputedArgument):
        return value.kind != "images"
    return value is None or value is Ellipsis or is_int(value)


def or_none(accepts: Accepts) -> Accepts:
    """Accept ``None`` too."""
    return lambda value: value is None or accepts(value)


def among(*values: Any) -> Accepts:
    """Accept these values, of exactly these types."""
    return lambda value: any(value is v or (type(value) is type(v) and value == v)
                             for v in values)  # fmt: skip


def boolean(name: str) -> Argument:
    """Return an argument that is true or false."""
    return Argument(name, among(True, False), "True or False")


def number(name: str, *, by_name: bool = False) -> Argument:
    """Return an argument that is a number."""
    return Argument(name, is_number, "a number", by_name)


def positive_number(name: str) -> Argument:
    """Return an argument that is a number above zero."""
    return Argument(name, lambda v: is_number(v) and v > 0, "a number above 0")


def integers(name: str) -> Argument:
    """Return an argument that is whole numbers."""
    return Argument(name, is_ints, "whole numbers")


def fixed_integers(name: str, *, none: bool = False) -> Argument:
    """Return an argument that is whole numbers, which no shape decides."""
    accepts = or_none(is_fixed_ints) if none else is_fixed_ints
    return Argument(name, accepts, "whole numbers that do not depend on the input")


AXIS = Argument("axis", is_ints, "whole numbers", by_name=True)
DIM = Argument("dim", or_none(is_ints), "whole numbers")
INPLACE = boolean("inplace")


def equals(name: str, value: float) -> LayerSetting:
    """Return the setting of a number that has to be this one."""
    return LayerSetting(
        name, lambda layer: getattr(layer, name) == value, f"{name} = {value:g}"
    )


def above_zero(name: str) -> LayerSetting:
    """Return the setting of a number that has to be positive."""
    return LayerSetting(name, lambda layer: getattr(layer, name) > 0, f"{name} > 0")


def refuse_settings(layer: object, settings: Sequence[LayerSetting]) -> None:
    """Refuse a layer with a setting that its rules do not cover."""
    for setting in settings:
        if not setting.fits(layer):
            value = getattr(layer, setting.name)
            raise NotImplementedError(
                f"no certificate with {setting.name}={value!r}: its rule is for "
                f"{setting.wanted}"
            )
