r"""Linear lower bounds, and how they go backward (CROWN, Zhang et al., 2018).

A :class:`LinearForms` value is a stack of lower bounds :math:`c \ge a^\top z + b` that are
linear in the value :math:`z` of one node, ``coefficients`` of shape ``(rows, batch,
*shape)`` and ``bias`` of shape ``(rows, batch)``. A backward rule takes the forms of a node
to forms of its input:

- affine layers, :math:`z = W x + d`, exactly: :math:`(W^\top a, b + a^\top d)`;
- activations by their two lines (:mod:`advnorm.bounds.relax`): a positive coefficient
  takes the lower line, a negative one the upper;
- max pooling: below, the entry with the largest lower bound; above, the same entry where
  it beats all others surely, else the constant largest upper bound.

Where a value is used more than once its coefficients add up. Upper bounds are lower bounds
of the negated forms. Everything is differentiable, in the weights and in the intermediate
bounds.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.bounds.relax import Lines


class LinearForms(NamedTuple):
    """Lower bounds that are linear in the value of a node."""

    coefficients: Tensor
    bias: Tensor


def by_derivative(
    function: Callable[..., Tensor], a: Tensor, *shapes: torch.Size
) -> list[LinearForms]:
    r"""Take forms through any map :math:`f` that is affine in its inputs together.

    Its transpose is its derivative's. The constant is :math:`a^\top f(0)`.
    """
    zeros = [torch.zeros(shape, dtype=a.dtype, device=a.device) for shape in shapes]
    value, pull, *_ = torch.func.vjp(function, *zeros)
    first, *others = torch.func.vmap(pull)(a)
    forms = [LinearForms(first, inner(a, value))]
    return forms + [LinearForms(part, a.new_zeros(a.shape[:2])) for part in others]


def through_lines(a: Tensor, lines: Lines) -> LinearForms:
    r"""Take forms through an activation: the lower line where positive, else the upper.

    With :math:`a^- = \min(a, 0)` that is :math:`\underline a\, a + (\overline a -
    \underline a)\, a^-`, and the biases alike: few passes over the coefficients.
    """
    negative = a.clamp(max=0)
    apart = lines.upper_slope - lines.lower_slope
    coefficients = (a * lines.lower_slope).addcmul_(negative, apart)
    if not lines.lower_bias.ndim:  # zero, by Lines' convention
        return LinearForms(coefficients, inner(negative, lines.upper_bias))
    bias = inner(negative, lines.upper_bias - lines.lower_bias)
    return LinearForms(coefficients, bias + inner(a, lines.lower_bias))


def through_channels(a: Tensor, factor: Tensor, shift: Tensor) -> LinearForms:
    """Take forms through a norm with fixed moments: a factor and a shift per feature."""
    return LinearForms(a * factor, times_bias(a, shift.flatten(), 2))


def times_bias(a: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    r"""Return :math:`a^\top d` for a bias along one dimension."""
    if bias is None:
        return a.new_zeros(a.shape[:2])
    others = [d for d in range(2, a.ndim) if d != dim % a.ndim]
    return (a.sum(others) if others else a) @ bias


def inner(a: Tensor, value: Tensor) -> Tensor:
    """Return the inner products of forms with one value per sample: ``(rows, batch)``."""
    if a.shape[1] == 1 and value.shape == a.shape[1:]:  # a matrix times a vector: faster
        return (a.flatten(1) @ value.flatten()).unsqueeze(1)
    return (a * value).flatten(2).sum(2)
