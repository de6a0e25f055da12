"""Sums, multiples by constants, and concatenations."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from advnorm.bounds.box import Box, scaled
from advnorm.bounds.layer_checks import is_plain
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations.arguments import (
    AXIS,
    Argument,
    among,
    integers,
    is_operand,
    number,
)
from advnorm.bounds.operations.entry import Call, IntervalRule, Operation, leaves, register
from advnorm.bounds.operations.shapes import function_backward


def add(function: Any, first: Any, other: Any, *, alpha: float = 1) -> Box:
    """Add centres and add radii."""
    if not isinstance(first, Box):
        return scaled(other, alpha, _constant(first, other))
    if not isinstance(other, Box):
        return scaled(first, 1, _constant(alpha * other, first))
    return Box(first.lead + alpha * other.lead, first.radius + abs(alpha) * other.radius)


def sub(function: Any, first: Any, other: Any, *, alpha: float = 1) -> Box:
    """Subtract centres and add radii."""
    return add(function, first, other, alpha=-alpha)


def neg(function: Any, box: Box) -> Box:
    """Negate the box."""
    return scaled(box, -1, 0)


def mul(function: Any, first: Any, other: Any) -> Box:
    """Multiply by a constant."""
    if isinstance(first, Box) and isinstance(other, Box):
        raise NotImplementedError(
            "no certificate for a product of two values that depend on the input: multiply "
            "by constants"
        )
    box, factor = (first, other) if isinstance(first, Box) else (other, first)
    return scaled(box, _constant(factor, box), 0)


def div(function: Any, box: Any, divisor: Any, *, rounding_mode: None = None) -> Box:
    """Divide by a constant."""
    if isinstance(divisor, Box):
        raise NotImplementedError(
            "no certificate for a division by a value that depends on the input"
        )
    divisor = _constant(divisor, box)
    if isinstance(divisor, Tensor):  # else its inverse is rounded to its own type
        divisor = divisor.to(torch.result_type(box.radius, divisor))
    return scaled(box, 1 / divisor, 0)


def cat(
    function: Any, tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None
) -> Box:
    """Put the boxes side by side."""
    dim = dim if axis is None else axis
    are_boxes = all(isinstance(box, Box) for box in tensors)
    if not are_boxes or dim % len(tensors[0].shape) == 0:
        raise NotImplementedError(
            "no certificate for a concatenation of samples, or with constants: concatenate "
            "features that depend on the input"
        )
    lead = torch.cat([box.lead for box in tensors], dim)
    return Box(lead, torch.cat([box.radius for box in tensors], dim))


def _constant(value: Any, box: Box) -> Any:
    """Return a constant that broadcasts against the rows of a box, clean ones too."""
    if not isinstance(value, Tensor):
        return value
    if not is_plain(value):
        raise NotImplementedError(
            f"a constant is a {type(value).__name__}: use a plain tensor"
        )
    if value.ndim > len(box.shape):
        raise NotImplementedError("a constant has more dimensions than what it is added to")
    if value.ndim == len(box.shape) and len(value) != 1:
        raise NotImplementedError(
            f"a constant has {len(value)} rows, one per sample: what holds for an image "
            "must not depend on its place in the batch"
        )
    return value.to(box.radius.dtype) if value.dtype == torch.bool else value


def _add_backward(call: Call, a: Tensor, prepared: Any) -> list[LinearForms]:
    """Hand the coefficients on where two values of one shape are added."""
    values = [v for v in leaves((call.args, call.kwargs)) if isinstance(v, Box | Tensor)]
    plain = all(isinstance(v, Box) and v.shape == a.shape[1:] for v in values)
    if plain and len(values) == len(call.args) == 2 and not call.kwargs:
        return [LinearForms(a, a.new_zeros(a.shape[:2]))] * 2
    return function_backward(call, a, prepared)


def _sizes(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return value
    return value.size if isinstance(value, Box) else abs(value)


def _sum_sizes(first: Any, other: Any, *, alpha: float = 1) -> Any:
    return _sizes(first) + abs(alpha) * _sizes(other)


def _product_sizes(first: Any, other: Any) -> Any:
    return _sizes(first) * _sizes(other)


def _quotient_sizes(box: Any, divisor: Any, *, rounding_mode: None = None) -> Any:
    return _sizes(box) / _sizes(divisor)


def _cat_sizes(tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> Tensor:
    return torch.cat([_sizes(box) for box in tensors], dim if axis is None else axis)


def _register(
    *functions: str,
    interval: IntervalRule,
    sizes: Callable[..., Any],
    arguments: tuple[Argument, ...] = (),
    rounds: bool = True,
    is_entrywise: bool = True,
) -> None:
    def size(call: Call) -> Tensor:
        return torch.as_tensor(sizes(*call.args, **call.kwargs))

    register(
        Operation(
            functions=functions,
            arguments=arguments,
            interval=interval,
            backward=_add_backward if functions[0] == "add" else function_backward,
            size=size,
            rounding=(lambda call, output: size(call)) if rounds else None,
            is_entrywise=is_entrywise,
        )
    )


_OTHER = Argument("other", is_operand, "a number or a tensor")
_ALPHA = number("alpha", by_name=True)
_NO_ROUNDING_MODE = Argument("rounding_mode", among(None), "None", by_name=True)
_register("add", "iadd", interval=add, sizes=_sum_sizes, arguments=(_OTHER, _ALPHA))
_register(
    *("sub", "isub", "subtract"),
    interval=sub,
    sizes=_sum_sizes,
    arguments=(_OTHER, _ALPHA),
)
_register(
    *("mul", "imul", "multiply"),
    interval=mul,
    sizes=_product_sizes,
    arguments=(_OTHER,),
)
_register(
    *("div", "truediv", "itruediv", "divide"),
    interval=div,
    sizes=_quotient_sizes,
    arguments=(_OTHER, _NO_ROUNDING_MODE),
)
_register("neg", "negative", interval=neg, sizes=_sizes, rounds=False)
_register(
    *("cat", "concat", "concatenate"),
    interval=cat,
    sizes=_cat_sizes,
    arguments=(integers("dim"), AXIS),
    rounds=False,
    is_entrywise=False,
)
