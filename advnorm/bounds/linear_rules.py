r"""Backward linear bounds (CROWN, Zhang et al., 2018): one rule a layer type.

A :class:`Rows` value is a stack of lower bounds :math:`c \ge a^\top z + b` that are linear
in the value :math:`z` of one node, ``coefficients`` of shape ``(rows, batch, *shape)`` and
``bias`` of shape ``(rows, batch)``. A rule takes the rows of a node to rows of its input:

- affine layers, :math:`z = W x + d`, exactly: :math:`(W^\top a, b + a^\top d)`;
- activations by their two lines (:mod:`advnorm.bounds.relax`): a positive coefficient
  takes the lower line, a negative one the upper;
- max pooling: below, the entry with the largest lower bound; above, the same entry where
  it beats all others surely, else the constant largest upper bound.

Where a value is used more than once its coefficients add up. Upper bounds are lower bounds
of the negated rows. Everything is differentiable, in the weights and in the intermediate
bounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds import transposed_convolution
from advnorm.bounds.relax import Lines


class Rows(NamedTuple):
    """Lower bounds that are linear in the value of a node."""

    coefficients: Tensor
    bias: Tensor


def dense(layer: nn.Module, a: Tensor) -> Rows:
    r"""Take rows through ``nn.Linear``: :math:`W^\top a` and :math:`a^\top d`."""
    assert isinstance(layer, nn.Linear)
    return Rows(a @ layer.weight, constant(a, layer.bias, -1))


def convolution(layer: nn.Module, a: Tensor, shape: torch.Size) -> Rows:
    """Take rows through a convolution: the transposed convolution.

    Its output is padded where the stride left out the last entries of the input.
    """
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return by_derivative(layer, a, shape)
    used = (
        (out - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1
        for out, stride, pad, dilation, kernel in zip(
            a.shape[3:],
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.kernel_size,
            strict=True,
        )
    )
    if isinstance(layer, nn.Conv2d) and transposed_convolution.fits(layer):
        found = transposed_convolution.transposed(layer, a.flatten(0, 1), shape[2:])
        return Rows(found.view(*a.shape[:2], *found.shape[1:]), constant(a, layer.bias, 2))
    transposed = F.conv_transpose1d if isinstance(layer, nn.Conv1d) else F.conv_transpose2d
    found = transposed(
        a.flatten(0, 1),
        layer.weight.contiguous(),
        None,
        layer.stride,
        layer.padding,
        tuple(size - n for size, n in zip(shape[2:], used, strict=True)),
        layer.groups,
        layer.dilation,
    )
    return Rows(found.view(*a.shape[:2], *found.shape[1:]), constant(a, layer.bias, 2))


def by_derivative(
    function: Callable[[Tensor], Tensor], a: Tensor, shape: torch.Size
) -> Rows:
    r"""Take rows through any affine map :math:`f`: its transpose is its derivative's.

    The constant is :math:`a^\top f(0)`.
    """
    zero = torch.zeros(shape, dtype=a.dtype, device=a.device)
    value, pull, *_ = torch.func.vjp(function, zero)
    (found,) = torch.func.vmap(pull)(a)
    return Rows(found, inner(a, value))


def between(a: Tensor, lines: Lines) -> Rows:
    r"""Take rows through an activation: the lower line where positive, else the upper.

    With :math:`a^- = \min(a, 0)` that is :math:`\underline a\, a + (\overline a -
    \underline a)\, a^-`, and the biases alike: few passes over the rows.
    """
    negative = a.clamp(max=0)
    apart = lines.upper_slope - lines.lower_slope
    found = (a * lines.lower_slope).addcmul_(negative, apart)
    if not lines.lower_bias.ndim:  # zero, by Lines' convention
        return Rows(found, inner(negative, lines.upper_bias))
    bias = inner(negative, lines.upper_bias - lines.lower_bias)
    return Rows(found, bias + inner(a, lines.lower_bias))


class Pooled(NamedTuple):
    """What bounds a max pooling: the entry it picks, whether surely, and a ceiling."""

    picked: Tensor
    sure: Tensor
    ceiling: Tensor


def pool_bounds(layer: nn.Module, lower: Tensor, upper: Tensor) -> Pooled:
    """Find the entry with the largest lower bound of each window, and what may beat it."""
    assert isinstance(layer, nn.MaxPool1d | nn.MaxPool2d)
    dimensions = 3 if isinstance(layer, nn.MaxPool1d) else 4
    if lower.ndim != dimensions:  # torch takes the samples for the maps of one image
        raise NotImplementedError(
            f"linear bounds of it take values of {dimensions} dimensions, samples and maps "
            f"first, not of {lower.ndim}"
        )
    pool = F.max_pool1d if isinstance(layer, nn.MaxPool1d) else F.max_pool2d
    settings = (
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        layer.ceil_mode,
    )
    best, index = pool(lower, *settings, return_indices=True)
    return Pooled(index, _second(upper, index, layer) <= best, pool(upper, *settings))


def _second(upper: Tensor, index: Tensor, layer: nn.Module) -> Tensor:
    """Return the largest upper bound of each window, the picked entry left out."""
    windows = _windows(upper, layer, fill=-torch.inf)
    numbers = torch.arange(
        upper.shape[2:].numel(), device=upper.device, dtype=torch.float64
    )
    places = _windows(numbers.view(1, 1, *upper.shape[2:]), layer, fill=-1.0)
    for dim, size in enumerate(index.shape[2:], start=2):
        windows, places = windows.narrow(dim, 0, size), places.narrow(dim, 0, size)
    return windows.masked_fill(places == index.unsqueeze(-1), -torch.inf).amax(-1)


def _windows(x: Tensor, layer: Any, *, fill: float) -> Tensor:
    """Return the entries of each window of a pooling, last: ``(batch, maps, *out, n)``."""
    dims = x.ndim - 2
    kernel, stride, padding, dilation = (
        value if isinstance(value, tuple) else (value,) * dims
        for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    )
    sides: list[int] = []
    for s, p in zip(stride, padding, strict=True):
        more = s - 1 if layer.ceil_mode else 0  # the last window may hang over the edge
        sides = [p, p + more, *sides]
    x = F.pad(x, sides, value=fill)
    for dim, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True), start=2):
        x = x.unfold(dim, d * (k - 1) + 1, s)[..., ::d]
    return x.flatten(2 + dims)


def pooled(found: Pooled, a: Tensor, shape: torch.Size) -> Rows:
    """Take rows through max pooling."""
    picked = torch.where(found.sure, a, a.clamp(min=0))
    flat = torch.zeros(
        (*a.shape[:3], shape[2:].numel()), dtype=a.dtype, device=a.device
    ).scatter_add(3, found.picked.flatten(2).expand(*a.shape[:3], -1), picked.flatten(3))
    return Rows(flat.view(len(a), *shape), inner(a - picked, found.ceiling))


def constant(a: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    r"""Return :math:`a^\top d` for a bias along one dimension."""
    if bias is None:
        return a.new_zeros(a.shape[:2])
    rest = [d for d in range(2, a.ndim) if d != dim % a.ndim]
    return (a.sum(rest) if rest else a) @ bias


def inner(a: Tensor, value: Tensor) -> Tensor:
    """Return the inner products of rows with one value a sample: ``(rows, batch)``."""
    return (a * value).flatten(2).sum(2)


def diagonal(a: Tensor, factor: Tensor, shift: Tensor) -> Rows:
    """Take rows through a norm with fixed moments: a factor and a shift a feature."""
    return Rows(a * factor, constant(a, shift.flatten(), 2))
