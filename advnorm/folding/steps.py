r"""The steps of a folded model. Each is bound to weights: folded, cast and laid out once.

A bound step is a function of tensors. What autograd does not read afterwards is overwritten
in place: of a convolution it reads the input alone, of a ReLU the output.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from advnorm import matrix_products
from advnorm.bounds.graph import replaced
from advnorm.folding.feature_maps import Constants, FeatureMap, MapSource
from advnorm.image_gradients import convolve, pays

Product = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
Bound = Callable[..., Any]
"""A step that is ready to run on the values of its inputs."""


class Layout(NamedTuple):
    """The precision of all passes, and the memory layout of feature maps."""

    dtype: torch.dtype
    channels_last: bool

    def cast(self, x: Tensor) -> Tensor:
        """Return a tensor in this precision, feature maps and kernels in this layout."""
        return self.arrange(x.to(self.dtype))

    def arrange(self, x: Tensor) -> Tensor:
        """Return a tensor in this layout."""
        if self.channels_last and x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def cast_any(self, value: Any) -> Any:
        """Cast what is a tensor of floats."""
        floats = isinstance(value, Tensor) and value.is_floating_point()
        return self.cast(value) if floats else value


class Step(Protocol):
    """A step of a folded model."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The values that it takes."""
        ...

    def bind(self, layout: Layout, constants: Constants) -> Bound:
        """Return it with present weights."""
        ...


@dataclass
class ProductStep:
    r"""A linear layer or convolution with the maps beside it, then ReLU.

    .. math::
        W' = s_a W s_b, \qquad b' = s_a (b + W t_b) + t_a

    with the map ``b`` before it and ``a`` after it. A map before a layer with padding is
    not folded: the padding is zero after the map.
    """

    layer: Product
    inputs: tuple[int, ...]
    before: MapSource | None = None
    after: MapSource | None = None
    relu: bool = False
    maps: tuple[int, ...] | None = None
    """The shape of the feature maps that a linear layer gets as rows."""

    def bind(self, layout: Layout, constants: Constants) -> Bound:
        """Fold, and cast once."""
        before = self.before and self.before(constants)
        after = self.after and self.after(constants)
        weight, bias = folded(self.layer, before, after)
        layer, relu, kind = self.layer, self.relu, layout.dtype
        if type(layer) is nn.Conv2d and layer.padding_mode == "zeros":
            return _convolution(layer, weight, bias, relu, layout)
        weight = layout.cast(weight)
        bias = None if bias is None else bias.to(kind)
        linear, maps = isinstance(layer, nn.Linear), self.maps
        if maps is not None and layout.channels_last:
            weight = weight.view(len(weight), *maps).permute(0, 2, 3, 1).flatten(1)

        def run(x: Tensor) -> Tensor:
            x = x if x.dtype == kind else x.to(kind)
            if maps is not None:
                x = (x.permute(0, 2, 3, 1) if layout.channels_last else x).flatten(1)
            if linear:
                y = matrix_products.linear(x, weight, bias)
            else:
                y = layer._conv_forward(x, weight, bias)  # type: ignore[operator]
            return y.relu_() if relu else y

        return run


def _convolution(
    layer: nn.Conv2d, weight: Tensor, bias: Tensor | None, relu: bool, layout: Layout
) -> Bound:
    """Return a convolution; one with a faster gradient of images keeps its precision."""
    stride, padding, dilation, groups = (
        layer.stride,
        layer.padding,
        layer.dilation,
        layer.groups,
    )
    wide = groups == 1 and not isinstance(padding, str) and pays(weight, stride)
    if not wide:
        weight = layout.cast(weight)
    bias = None if bias is None else bias.to(weight.dtype)
    inside, kind = weight.dtype, layout.dtype

    def run(x: Tensor) -> Tensor:
        x = x if x.dtype == inside else x.to(inside)
        y = convolve(x, weight, bias, stride, padding, dilation, groups)
        y = y.relu_() if relu else y
        return y if inside == kind else y.to(kind)

    return run


def folded(
    layer: Product, before: FeatureMap | None, after: FeatureMap | None
) -> tuple[Tensor, Tensor | None]:
    """Return the weight and the bias of a layer between two maps, in its own precision."""
    weight, bias = layer.weight.detach(), layer.bias
    total = None if bias is None else bias.detach().double()
    ones = (1,) * (weight.ndim - 2)
    if before is not None:
        scale, shift = (v.expand(weight.shape[1]).view(1, -1, *ones) for v in before)
        sums = (weight * shift).flatten(1).sum(1)
        total = sums if total is None else total + sums
        weight = weight * scale.to(weight.dtype)
    if after is not None:
        total = after.shift if total is None else after.scale * total + after.shift
        weight = weight * after.scale.to(weight.dtype).view(-1, 1, *ones)
    return weight, None if total is None else total.to(weight.dtype)


@dataclass
class MapStep:
    """A map per feature that no layer beside it can take in, then ReLU."""

    source: MapSource
    inputs: tuple[int, ...]
    dims: int
    relu: bool = False

    def bind(self, layout: Layout, constants: Constants) -> Bound:
        """Read the map."""
        source, relu, kind = self.source(constants), self.relu, layout.dtype
        wide = torch.float32 if kind == torch.bfloat16 else kind
        each = _shaped(source, self.dims, wide)
        if relu:
            return lambda x: _MapReLU.apply(x, *each)  # type: ignore[no-untyped-call]
        return lambda x: torch.addcmul(each.shift, x, each.scale).to(kind)


def _shaped(each: FeatureMap, dims: int, dtype: torch.dtype) -> FeatureMap:
    shape = (1, -1, *(1,) * (dims - 2))
    return FeatureMap(*(v.to(dtype).view(shape) for v in each))


class _MapReLU(torch.autograd.Function):
    """ReLU of a map per feature; the output alone is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        if x.dtype == scale.dtype:
            y = torch.addcmul(shift, x, scale)
        else:  # sums of bfloat16 and a vector are slow
            zeros = torch.zeros_like(scale).flatten()
            vectors = scale.flatten(), shift.flatten(), zeros, zeros + 1
            y = torch.native_batch_norm(x, *vectors, False, 0.0, 0.0)[0]
        ctx.save_for_backward(y.relu_(), scale.to(x.dtype))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Any, ...]:
        y, scale = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(of_y, y, 0).mul_(scale), None, None


@dataclass
class SumStep:
    """The sum of two values, then ReLU; ``fresh`` is an input that may be overwritten."""

    inputs: tuple[int, ...]
    fresh: int | None = None
    relu: bool = False

    def bind(self, layout: Layout, constants: Constants) -> Bound:
        """Choose what is overwritten."""
        fresh, relu = self.fresh, self.relu

        def run(a: Tensor, b: Tensor) -> Tensor:
            if fresh is not None and a.shape == b.shape and a.dtype == b.dtype:
                total = a.add_(b) if fresh == 0 else b.add_(a)
            else:
                total = a + b
            return total.relu_() if relu else total

        return run


@dataclass
class LayerStep:
    """Any other layer, as it is and in its own precision."""

    layer: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[int, ...]

    def bind(self, layout: Layout, constants: Constants) -> Bound:
        """Cast its input where it has weights of another precision."""
        floats = (t for t in self.layer.state_dict().values() if t.is_floating_point())
        own, kind = next(floats, None), layout.dtype
        if own is None or own.dtype == kind:
            return _caller(self, self.layer, layout, constants)
        layer, wide = self.layer, own.dtype

        def run(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            y: Tensor = layer(x.to(wide), *args, **kwargs)
            return y.to(kind)

        return _caller(self, run, layout, constants)


@dataclass
class CallStep:
    """A function, as the model calls it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[int, ...]

    def bind(self, layout: Layout, constants: Constants) -> Bound:
        """Fill in the constants."""
        return _caller(self, self.function, layout, constants)


def _caller(
    step: LayerStep | CallStep,
    function: Callable[..., Any],
    layout: Layout,
    constants: Constants,
) -> Bound:
    """Return a call whose arguments are filled in: values, and constants."""
    place = {index: place for place, index in enumerate(step.inputs)}
    known = {i: layout.cast_any(v) for i, v in constants.items()}

    def run(*values: Any) -> Any:
        args, kwargs = replaced(
            (step.args, dict(step.kwargs)),
            lambda r: values[place[r.index]] if r.index in place else known[r.index],
        )
        return function(*args, **kwargs)

    return run
