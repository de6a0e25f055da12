r"""Activations: the shared entry, and the piecewise linear ones.

An increasing function maps :math:`[l, u]` onto :math:`[f(l), f(u)]`. A function that falls
until :math:`v` and rises after it has its least value at the point of :math:`[l, u]`
nearest to :math:`v`, and its largest at one of the ends. Backward, forms go through two
lines (:mod:`advnorm.bounds.relax`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds import interval_kernels, linear_forms, relax
from advnorm.bounds.box import Box, between
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations.arguments import (
    INPLACE,
    Argument,
    LayerSetting,
    equals,
    number,
)
from advnorm.bounds.operations.entry import Call, IntervalRule, Operation, register
from advnorm.bounds.relax import Lines, Relaxation

_BENT = 10.0
"""Beyond it every activation is a line or flat, to all digits."""


def activation(
    *layers: type[nn.Module],
    interval: IntervalRule,
    max_slope: float | Callable[[Any], float],
    relaxation: Relaxation | None = None,
    functions: tuple[str, ...] = (),
    arguments: tuple[Argument, ...] = (),
    settings: tuple[LayerSetting, ...] = (),
    rounds: bool = True,
    bends_at_zero: bool = False,
    zeroes_negatives: bool = False,
) -> Operation:
    """Return the entry of an activation, a function of each value alone.

    Args:
        layers: Its layer types.
        interval: The rule ``(layer, box) -> box``: :func:`increasing`, or a
            :func:`valley`.
        max_slope: A slope that it nowhere exceeds, or a function of the layer.
        relaxation: The rule ``(layer, lower, upper) -> Lines``; without one, linear bounds
            end here at the interval bounds.
        functions: Functions and methods that are the first of ``layers``.
        arguments: Arguments of these functions.
        settings: Settings that its rules are for.
        rounds: Whether its value is rounded.
        bends_at_zero: Linear on both sides of zero.
        zeroes_negatives: Zero wherever its input is not positive.
    """

    def size(call: Call) -> Tensor:
        slope = max_slope(call.target) if callable(max_slope) else max_slope
        return slope * call.box.size

    def prepare(layer: Any, box: Box) -> Lines:
        # forms are laid out plainly: lines of another layout would slow each pass down
        assert relaxation is not None
        return relaxation(layer, box.lower.contiguous(), box.upper.contiguous())

    return Operation(
        layers=layers,
        functions=functions,
        arguments=arguments,
        settings=settings,
        interval=interval,
        backward=relaxation and _through_lines,
        prepare=relaxation and prepare,
        relaxation=relaxation,
        size=size,
        rounding=_rounding if rounds else None,
        needs_bounds=relaxation is not None,
        bends_at_zero=bends_at_zero,
        zeroes_negatives=zeroes_negatives,
    )


def _through_lines(call: Call, a: Tensor, lines: Lines) -> list[LinearForms]:
    return [linear_forms.through_lines(a, lines)]


def _rounding(call: Call, output: Box) -> Tensor:
    """Return sizes: what an activation does with a large input is no sum of it."""
    return output.magnitude + call.box.magnitude.clamp(max=_BENT)


def increasing(layer: nn.Module, box: Box) -> Box:
    """Map both ends."""
    apply = _pure(layer)
    clean = None if box.clean is None else apply(box.clean)
    return between(clean, apply(box.lower), apply(box.upper))


def valley(at: float | Callable[[Any], float]) -> IntervalRule:
    """Return the rule of a function that falls until ``at`` (or never) and rises after."""

    def interval(layer: nn.Module, box: Box) -> Box:
        apply, bottom = _pure(layer), at(layer) if callable(at) else at
        lower, upper = box.lower, box.upper
        first, last = apply(lower), apply(upper)
        lowest = apply(torch.minimum(lower.clamp(min=bottom), upper))
        clean = None if box.clean is None else apply(box.clean)
        return between(clean, torch.minimum(first, lowest), torch.maximum(first, last))

    return interval


def _pure(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the layer as a function that leaves its argument alone."""
    inplace = bool(getattr(layer, "inplace", False))
    return (lambda x: layer(x.clone())) if inplace else layer


def _relu_interval(layer: nn.ReLU, box: Box) -> Box:
    """Map both ends, in one function of its own."""
    return interval_kernels.relu(box)


def _relu_lines(layer: nn.ReLU, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.ReLU``: two pieces of slope 0 and 1, in fewer operations."""
    low, high = lower.clamp(max=0), upper.clamp(min=0)
    chord = high / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
    piece = (upper + lower > 0).to(low.dtype)
    return Lines(piece, low.new_zeros(()), chord, -chord * low)


def _leaky_relu_lines(layer: nn.LeakyReLU, lower: Tensor, upper: Tensor) -> Lines:
    slope = torch.as_tensor(layer.negative_slope, dtype=lower.dtype, device=lower.device)
    return relax.two_pieces(lower, upper, slope)


def _prelu_lines(layer: nn.PReLU, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.PReLU``, one slope for all features or one each."""
    shape = (-1, *(1,) * (lower.ndim - 2))
    return relax.two_pieces(lower, upper, layer.weight.view(shape))


def _hardtanh_lines(layer: nn.Hardtanh, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.Hardtanh`` and ``nn.ReLU6``, which bend at two points."""
    f = partial(F.hardtanh, min_val=layer.min_val, max_val=layer.max_val)
    k = relax.chord(f, lower, upper)
    return relax.parallel(f, lower, upper, k, _bends(k, layer.min_val, layer.max_val))


def _hardsigmoid_lines(layer: nn.Hardsigmoid, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.Hardsigmoid``, which bends at -3 and 3."""
    k = relax.chord(F.hardsigmoid, lower, upper)
    return relax.parallel(F.hardsigmoid, lower, upper, k, _bends(k, -3.0, 3.0))


def _hardswish_lines(layer: nn.Hardswish, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Hardswish``: :math:`z (z + 3) / 6` between its bends at -3 and 3."""
    k = relax.chord(F.hardswish, lower, upper)
    points = (3 * k - 1.5, *_bends(k, -3.0, 3.0))
    return relax.parallel(F.hardswish, lower, upper, k, points)


def _bends(k: Tensor, *points: float) -> list[Tensor]:
    return [torch.full_like(k, point) for point in points]


register(
    activation(
        nn.ReLU,
        functions=("relu",),
        arguments=(INPLACE,),
        interval=_relu_interval,
        relaxation=_relu_lines,
        max_slope=1.0,
        rounds=False,
        bends_at_zero=True,
        zeroes_negatives=True,
    )
)
register(
    activation(
        nn.LeakyReLU,
        functions=("leaky_relu",),
        arguments=(number("negative_slope"), INPLACE),
        interval=valley(0.0),  # with a negative slope
        relaxation=_leaky_relu_lines,
        max_slope=lambda layer: max(1.0, abs(layer.negative_slope)),
        bends_at_zero=True,
    )
)
register(
    activation(
        nn.PReLU,
        interval=valley(0.0),
        relaxation=_prelu_lines,
        max_slope=lambda layer: max(1.0, float(layer.weight.abs().max())),
        bends_at_zero=True,
    )
)
register(
    activation(
        nn.Hardtanh,
        functions=("hardtanh",),
        arguments=(number("min_val"), number("max_val"), INPLACE),
        interval=increasing,
        relaxation=_hardtanh_lines,
        max_slope=1.0,
        rounds=False,
    )
)
register(
    activation(
        nn.ReLU6,
        functions=("relu6",),
        arguments=(INPLACE,),
        settings=(equals("min_val", 0), equals("max_val", 6)),  # its forward reads neither
        interval=increasing,
        relaxation=_hardtanh_lines,
        max_slope=1.0,
        rounds=False,
    )
)
register(
    activation(
        nn.Hardsigmoid, interval=increasing, relaxation=_hardsigmoid_lines, max_slope=1.0
    )
)
register(
    activation(
        nn.Hardswish, interval=valley(-1.5), relaxation=_hardswish_lines, max_slope=1.5
    )
)
