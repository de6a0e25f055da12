"""Which backward rule belongs to which layer type and function; types match exactly."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.bounds import linear_rules
from advnorm.bounds.box import Box
from advnorm.bounds.graph import Node
from advnorm.bounds.interval import leaves
from advnorm.bounds.interval_norms import coefficients, moments
from advnorm.bounds.linear_rules import Rows
from advnorm.bounds.operations import AFFINE
from advnorm.bounds.relax import RELAXATIONS
from advnorm.norms import BatchNorm, BorrowedNorm, MixtureNorm
from advnorm.norms.mode import uses_batch
from advnorm.norms.moments import measure_moments

Rule = Callable[[nn.Module, Tensor, torch.Size, Any], Rows]
"""Takes a layer, rows of its output, the shape of its input and what was prepared."""

POOLS = (nn.MaxPool1d, nn.MaxPool2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, BatchNorm, BorrowedNorm, MixtureNorm)


def _same(layer: nn.Module, a: Tensor, shape: torch.Size, given: Any) -> Rows:
    return Rows(a, a.new_zeros(a.shape[:2]))


def _dropped(layer: nn.Module, a: Tensor, shape: torch.Size, given: Any) -> Rows:
    if layer.training and getattr(layer, "p", False):
        raise NotImplementedError(
            "it drops values at random now, and linear bounds do not know which: leave it "
            "out, or train with interval bounds alone"
        )
    return _same(layer, a, shape, given)


def _reshape(layer: nn.Module, a: Tensor, shape: torch.Size, given: Any) -> Rows:
    return Rows(a.reshape(len(a), *shape), a.new_zeros(a.shape[:2]))


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: lambda layer, a, shape, given: linear_rules.dense(layer, a),
    nn.Conv1d: lambda layer, a, shape, given: linear_rules.convolution(layer, a, shape),
    nn.Conv2d: lambda layer, a, shape, given: linear_rules.convolution(layer, a, shape),
    **{
        kind: lambda layer, a, shape, _: linear_rules.by_derivative(layer, a, shape)
        for kind in AFFINE
    },
    nn.Flatten: _reshape,
    nn.Unflatten: _reshape,
    nn.Identity: _same,
    nn.Dropout: _dropped,
    nn.Dropout1d: _dropped,
    nn.Dropout2d: _dropped,
    **{
        kind: lambda layer, a, shape, lines: linear_rules.between(a, lines)
        for kind in RELAXATIONS
    },
    **{
        kind: lambda layer, a, shape, found: linear_rules.pooled(found, a, shape)
        for kind in POOLS
    },
    **{
        kind: lambda layer, a, shape, found: linear_rules.diagonal(a, *found)
        for kind in NORMS
    },
}


def is_relaxed(layer: nn.Module) -> bool:
    """Tell whether the rule of a layer needs bounds of its input."""
    return type(layer) in RELAXATIONS or type(layer) in POOLS


def prepare(layer: nn.Module, given: Box) -> Any:
    """Return what a layer's rule needs of the bounds of its input, or of its moments."""
    kind = type(layer)
    if kind in RELAXATIONS:
        # rows are laid out plainly: lines of another layout would slow each pass down
        return RELAXATIONS[kind](layer, given.lower.contiguous(), given.upper.contiguous())
    if kind in POOLS:
        return linear_rules.pool_bounds(layer, given.lower, given.upper)
    if kind in NORMS:
        assert isinstance(layer, _BatchNorm | MixtureNorm)
        return factor_and_shift(layer, given)
    return None


def factor_and_shift(layer: _BatchNorm | MixtureNorm, box: Box) -> tuple[Tensor, Tensor]:
    """Return a norm's factor and shift a feature, as its interval rule has them.

    Nothing moves here: the interval rule has moved the running statistics where so set.
    """
    if isinstance(layer, MixtureNorm):
        layer = layer.of(layer.route.domain)
    if uses_batch(layer):
        assert box.clean is not None, "the interval rule refuses batch statistics"
        found = measure_moments(box.clean, sync=bool(getattr(layer, "sync", False)))
    else:
        found = moments(layer, box)
    return coefficients(layer, found, len(box.shape))


def through_function(
    node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any], a: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    r"""Take rows through a function that is affine in its inputs together.

    Its transpose is its derivative's, the constant :math:`a^\top f(0)`.
    """
    given = [value for value in leaves((args, kwargs)) if isinstance(value, Box)]
    if node.function == "add" and all(value.shape == a.shape[1:] for value in given):
        plain = [value for value in leaves((args, kwargs)) if isinstance(value, Tensor)]
        if not plain and len(given) == len(args) == 2 and not kwargs:
            return (a, a), a.new_zeros(a.shape[:2])
    if node.function in ("mul", "div") and len(given) > 1:
        raise NotImplementedError(
            f"no linear bounds for the product of two values at {node.name!r}: multiply by "
            "constants"
        )

    def call(*inputs: Tensor) -> Tensor:
        rest = iter([tensor + 0 for tensor in inputs])  # it may overwrite them
        full, named = _with_tensors((args, dict(kwargs)), rest)
        found: Tensor = node.target(*full, **named)
        return found

    zeros = [torch.zeros(v.shape, dtype=a.dtype, device=a.device) for v in given]
    value, pull, *_ = torch.func.vjp(call, *zeros)
    return torch.func.vmap(pull)(a), linear_rules.inner(a, value)


def _with_tensors(value: Any, inputs: Iterator[Tensor]) -> Any:
    """Put tensors in the place of intervals, in order."""
    if isinstance(value, Box):
        return next(inputs)
    if isinstance(value, tuple | list):
        return type(value)([_with_tensors(item, inputs) for item in value])
    if isinstance(value, dict):
        return {key: _with_tensors(item, inputs) for key, item in value.items()}
    return value
