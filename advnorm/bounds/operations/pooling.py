"""Average pooling, which is linear, and max pooling."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds import linear_forms
from advnorm.bounds.box import Box
from advnorm.bounds.linear_forms import LinearForms, inner
from advnorm.bounds.operations.activations import increasing
from advnorm.bounds.operations.arguments import (
    Argument,
    LayerSetting,
    among,
    boolean,
    fixed_integers,
    is_fixed_ints,
    or_none,
)
from advnorm.bounds.operations.entry import Call, Operation, register


def apply_to_both(layer: nn.Module, box: Box) -> Box:
    """Average or pad centre and radius alike: a zero of the padding is known exactly."""
    return Box(layer(box.lead), layer(box.radius))


def layer_size(call: Call) -> Tensor:
    """Take the sizes of terms through a layer without negative coefficients."""
    size: Tensor = call.target(call.box.size)
    return size


def layer_backward(call: Call, a: Tensor, prepared: Any) -> list[LinearForms]:
    """Take forms through an affine layer by its derivative."""
    return linear_forms.by_derivative(call.target, a, call.box.shape)


def average_rounding(call: Call, output: Box) -> Tensor:
    """Return the sizes of an average's terms."""
    return layer_size(call)


TIE = 1e-6
"""Lower bounds that are nearer than this share of a sample's largest value are a tie.

The first of them is picked. Instance norms in a large ball make all of them equal, and
rounding must not pick.
"""


class PoolBounds(NamedTuple):
    """Bounds of a max pooling: the picked entry, if it must win, and an upper bound."""

    picked: Tensor
    sure: Tensor
    ceiling: Tensor


def pool_bounds(layer: nn.MaxPool1d | nn.MaxPool2d, box: Box) -> PoolBounds:
    """Find the entry of each window with the largest lower bound, and bound its rivals."""
    lower, upper = box.lower, box.upper
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
    largest = lower.abs().flatten(1).amax(1).view(-1, *(1,) * (lower.ndim - 1))
    grid = TIE * largest.clamp(min=torch.finfo(lower.dtype).tiny / TIE)
    _, index = pool((lower / grid).round(), *settings, return_indices=True)
    best = lower.flatten(2).gather(2, index.flatten(2)).view_as(index)
    return PoolBounds(index, _second(upper, index, layer) <= best, pool(upper, *settings))


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


def _max_backward(call: Call, a: Tensor, bounds: PoolBounds) -> list[LinearForms]:
    """Take forms to the picked entries, or to the ceiling."""
    shape = call.box.shape
    picked = torch.where(bounds.sure, a, a.clamp(min=0))
    flat = torch.zeros(
        (*a.shape[:3], shape[2:].numel()), dtype=a.dtype, device=a.device
    ).scatter_add(3, bounds.picked.flatten(2).expand(*a.shape[:3], -1), picked.flatten(3))
    return [LinearForms(flat.view(len(a), *shape), inner(a - picked, bounds.ceiling))]


_KERNEL = (
    fixed_integers("kernel_size"),
    fixed_integers("stride", none=True),
    fixed_integers("padding"),
)
_AVERAGE = (*_KERNEL, boolean("ceil_mode"), boolean("count_include_pad"))
_DIVISOR = Argument(
    "divisor_override",
    or_none(lambda v: is_fixed_ints(v) and not isinstance(v, tuple | list) and v > 0),
    "None or a whole number above 0",
)
_SIZES = Argument(
    "output_size",
    lambda v: is_fixed_ints(
        [n for n in (v if isinstance(v, tuple | list) else (v,)) if n is not None]
    ),
    "whole numbers or None",
)
_MAX = (
    *_KERNEL,
    fixed_integers("dilation"),
    boolean("ceil_mode"),
    Argument("return_indices", among(False), "False"),
)
_NO_INDICES = LayerSetting(
    "return_indices", lambda layer: not layer.return_indices, "return_indices=False"
)
_POSITIVE_DIVISOR = LayerSetting(
    "divisor_override",
    lambda layer: layer.divisor_override is None or layer.divisor_override > 0,
    "divisor_override > 0, or None",
)


def _average_pool(
    layer: type[nn.Module],
    function: str,
    arguments: tuple[Argument, ...],
    *settings: LayerSetting,
) -> Operation:
    return Operation(
        layers=(layer,),
        functions=(function,),
        arguments=arguments,
        settings=settings,
        interval=apply_to_both,
        backward=layer_backward,
        size=layer_size,
        rounding=average_rounding,
        is_mixing=True,
    )


register(_average_pool(nn.AvgPool1d, "avg_pool1d", _AVERAGE))
register(
    _average_pool(nn.AvgPool2d, "avg_pool2d", (*_AVERAGE, _DIVISOR), _POSITIVE_DIVISOR)
)
register(
    _average_pool(
        nn.AdaptiveAvgPool1d, "adaptive_avg_pool1d", (fixed_integers("output_size"),)
    )
)
register(_average_pool(nn.AdaptiveAvgPool2d, "adaptive_avg_pool2d", (_SIZES,)))


def _max_pool(layer: type[nn.Module], function: str) -> Operation:
    return Operation(
        layers=(layer,),
        functions=(function,),
        arguments=_MAX,
        settings=(_NO_INDICES,),
        interval=increasing,
        backward=_max_backward,
        prepare=pool_bounds,
        size=layer_size,
        needs_bounds=True,
    )


register(_max_pool(nn.MaxPool1d, "max_pool1d"))
register(_max_pool(nn.MaxPool2d, "max_pool2d"))
register(
    Operation(
        layers=(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d),
        settings=(_NO_INDICES,),
        interval=increasing,
        size=layer_size,
    )
)
