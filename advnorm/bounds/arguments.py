"""Which arguments each function's rule understands; every other one is refused by name.

A function computes something else as soon as an argument says so: ``sum(dtype=torch.int8)``
rounds, ``div(rounding_mode="floor")`` has steps. A rule that hands on an argument that it
does not read is a rule for another function. So there is one entry an operation in
:data:`OPERATIONS`, with its arguments in the order in which torch takes them, and of each
the values that the rule is for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

import torch

Accepts = Callable[[Any], bool]


@dataclass(frozen=True)
class Value:
    """Stands for an argument that is computed in ``forward``."""

    kind: str
    """``"size"``, ``"constant"``, or ``"images"`` where it depends on them."""


@dataclass(frozen=True)
class Argument:
    """One argument of an operation, and which values of it the rule is for."""

    name: str
    accepts: Accepts
    wanted: str
    """Those values in words."""
    by_name: bool = False
    """Torch takes it by name alone."""


@dataclass(frozen=True)
class Operation:
    """The arguments of an operation behind its tensor, in order."""

    arguments: tuple[Argument, ...] = ()
    spread: bool = False
    """The first argument may be given as several numbers: ``view(2, 3)``."""


def bind(operation: str, where: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments behind the tensor by name; refuse what no rule reads.

    ``args`` and ``kwargs`` have a :class:`Value` for what ``forward`` computes.
    """
    known = OPERATIONS[operation]
    in_order = [argument for argument in known.arguments if not argument.by_name]
    if known.spread and len(args) > 1:
        args = (tuple(args),)
    names = {argument.name: argument for argument in known.arguments}
    if len(args) > len(in_order):
        raise _refused(operation, where, f"number {len(in_order) + 2}", args[len(in_order)])
    placed = zip(in_order, args, strict=False)
    bound = {argument.name: value for argument, value in placed}
    for name, value in kwargs.items():
        if name not in names or name in bound:
            raise _refused(operation, where, name, value)
        bound[name] = value
    for name, value in bound.items():
        if not names[name].accepts(value):
            raise _refused(operation, where, name, value, names[name].wanted)
    return bound


def _refused(
    operation: str, where: str, name: str, value: Any, wanted: str = ""
) -> NotImplementedError:
    known = ", ".join(argument.name for argument in OPERATIONS[operation].arguments)
    reads = f"its rule is for {name} = {wanted}" if wanted else "its rule does not read it"
    others = f" (it reads {known or 'none'})" if not wanted else ""
    what = f"a {value.kind} value" if isinstance(value, Value) else repr(value)[:80]
    return NotImplementedError(
        f"no certificate for {where!r} ({operation}) with the argument {name}={what}: "
        f"{reads}{others}; leave it out, or compute the same in layers that have a rule"
    )


def _is_int(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (isinstance(value, Value) and value.kind == "size")


def _is_ints(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_int, value))
    return _is_int(value)


def _is_fixed_ints(value: Any) -> bool:
    return _is_ints(value) and not isinstance(value, Value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _is_operand(value: Any) -> bool:
    return isinstance(value, Value | bool) or _is_number(value)


def _is_operands(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(v, Value) for v in value)


def _is_index(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_index, value))
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return all(part is None or _is_int(part) for part in parts)
    if isinstance(value, list):
        return all(isinstance(item, bool) or _is_int(item) for item in value)
    if isinstance(value, Value):
        return value.kind != "images"
    return value is None or value is Ellipsis or _is_int(value)


def _or_none(accepts: Accepts) -> Accepts:
    return lambda value: value is None or accepts(value)


def _among(*values: Any) -> Accepts:
    return lambda value: any(value is v or (type(value) is type(v) and value == v)
                             for v in values)  # fmt: skip


def _bool(name: str) -> Argument:
    return Argument(name, _among(True, False), "True or False")


def _number(name: str, *, by_name: bool = False) -> Argument:
    return Argument(name, _is_number, "a number", by_name)


def _positive(name: str) -> Argument:
    return Argument(name, lambda v: _is_number(v) and v > 0, "a number above 0")


def _ints(name: str) -> Argument:
    return Argument(name, _is_ints, "whole numbers")


def _fixed(name: str, *, none: bool = False) -> Argument:
    accepts = _or_none(_is_fixed_ints) if none else _is_fixed_ints
    return Argument(name, accepts, "whole numbers that do not depend on the input")


_OTHER = Argument("other", _is_operand, "a number or a tensor")
_DIM = Argument("dim", _or_none(_is_ints), "whole numbers")
_AXIS = Argument("axis", _is_ints, "whole numbers", by_name=True)
_NO_DTYPE = Argument("dtype", _among(None), "None", by_name=True)
_MODES = ("constant", "reflect", "replicate", "circular")
_LAYOUTS = (torch.contiguous_format, torch.channels_last, torch.preserve_format)
_SUM = Operation((_DIM, _bool("keepdim"), _AXIS, _NO_DTYPE))
_ADD = Operation((_OTHER, _number("alpha", by_name=True)))
_WINDOW = (_fixed("kernel_size"), _fixed("stride", none=True), _fixed("padding"))
_MAX_POOL = Operation(
    (
        *_WINDOW,
        _fixed("dilation"),
        _bool("ceil_mode"),
        Argument("return_indices", _among(False), "False"),
    )
)
_AVG_POOL = (*_WINDOW, _bool("ceil_mode"), _bool("count_include_pad"))
_DIVISOR = Argument(
    "divisor_override",
    _or_none(lambda v: _is_fixed_ints(v) and not isinstance(v, tuple | list) and v > 0),
    "None or a whole number above 0",
)
_INPLACE = _bool("inplace")

OPERATIONS: dict[str, Operation] = {
    "add": _ADD,
    "sub": _ADD,
    "mul": Operation((_OTHER,)),
    "div": Operation(
        (_OTHER, Argument("rounding_mode", _among(None), "None", by_name=True))
    ),
    "neg": Operation(),
    "cat": Operation((_ints("dim"), _AXIS)),
    "sum": _SUM,
    "mean": _SUM,
    "contiguous": Operation(
        (Argument("memory_format", _among(*_LAYOUTS), "a layout", by_name=True),)
    ),
    "flatten": Operation((_ints("start_dim"), _ints("end_dim"))),
    "getitem": Operation((Argument("index", _is_index, "numbers, slices and constants"),)),
    "movedim": Operation((_ints("source"), _ints("destination"))),
    "permute": Operation((_ints("dims"),), spread=True),
    "reshape": Operation((_ints("shape"),), spread=True),
    "squeeze": Operation((_DIM,)),
    "transpose": Operation((_ints("dim0"), _ints("dim1"))),
    "unsqueeze": Operation((_ints("dim"),)),
    "pad": Operation(
        (
            _ints("pad"),
            Argument("mode", _among(*_MODES), " or ".join(_MODES)),
            Argument("value", _or_none(_is_number), "None or a number"),
        )
    ),
    "relu": Operation((_INPLACE,)),
    "relu6": Operation((_INPLACE,)),
    "leaky_relu": Operation((_number("negative_slope"), _INPLACE)),
    "hardtanh": Operation((_number("min_val"), _number("max_val"), _INPLACE)),
    "elu": Operation((_positive("alpha"), _INPLACE)),
    "gelu": Operation(
        (Argument("approximate", _among("none", "tanh"), "'none' or 'tanh'", by_name=True),)
    ),
    "silu": Operation((_INPLACE,)),
    "softplus": Operation((_positive("beta"), _number("threshold"))),
    "sigmoid": Operation(),
    "tanh": Operation(),
    "max_pool1d": _MAX_POOL,
    "max_pool2d": _MAX_POOL,
    "avg_pool1d": Operation(_AVG_POOL),
    "avg_pool2d": Operation((*_AVG_POOL, _DIVISOR)),
    "adaptive_avg_pool1d": Operation((_fixed("output_size"),)),
    "adaptive_avg_pool2d": Operation(
        (
            Argument(
                "output_size",
                lambda v: _is_fixed_ints([n for n in _several(v) if n is not None]),
                "whole numbers or None",
            ),
        )
    ),
    "dropout": Operation((_number("p"), _bool("training"), _INPLACE)),
}
"""The arguments behind the tensor of every function that has a rule, or is a layer's."""


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)
