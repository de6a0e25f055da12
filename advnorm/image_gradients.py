r"""A faster gradient of convolutions with respect to images, on a CPU.

With few input channels, the library kernel for the gradient of a convolution's input costs
many times its forward pass, and is a large part of an attack's step on a small network for
MNIST (benchmarks/image_gradients.py). It is also a matrix product followed by a sum over
overlapping windows,

.. math:: \nabla_x = \operatorname{fold}(W^\top \nabla_y),

with the weights as a matrix :math:`W` of output channels x (input channels x window). That
is fast as long as there are few rows in the product, and where there is one channel. With a
stride, plain convolutions of the gradient that are interleaved
(:mod:`advnorm.transposed_convolution`) are faster. Values of forward passes do not change,
gradients by rounding only.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from advnorm import transposed_convolution

_FEW = 4
"""Input channels up to which a convolution with a stride is faster in this way."""


def faster_image_gradients(images: Tensor) -> AbstractContextManager[object]:
    """Return the context of a forward pass of ``images`` that is differentiated.

    Convolutions whose weights need no gradient are recorded with the faster one.

    >>> images, weight = torch.rand(1, 1, 4, 4, requires_grad=True), torch.ones(1, 1, 2, 2)
    >>> with faster_image_gradients(images):
    ...     total = F.conv2d(images, weight, stride=2).sum()
    >>> torch.autograd.grad(total, images)[0].unique()
    tensor([1.])
    """
    pays = images.requires_grad and images.device.type == "cpu" and images.ndim == 4
    return _Convolutions() if pays else nullcontext()


class _Window(NamedTuple):
    """How a convolution moves over its input."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def interleaves(self) -> bool:
        """Whether the gradient can be interleaved."""
        return transposed_convolution.fits(self.stride, self.dilation, 1)


class _Convolutions(TorchFunctionMode):
    """Records convolutions with the faster gradient where it is one."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.conv2d and not torch.compiler.is_compiling():
            return convolve(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve as ``torch.conv2d`` does, with the faster gradient where it pays."""
    frozen = not weight.requires_grad and (bias is None or not bias.requires_grad)
    fits = frozen and groups == 1 and input.requires_grad and input.ndim == 4
    if isinstance(padding, str) or not (fits and pays(weight, stride)):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    window = _Window(_pair(stride), _pair(padding), _pair(dilation))
    result: Tensor = _FewChannels.apply(input, weight, bias, window)  # type: ignore[no-untyped-call]
    return result


def pays(weight: Tensor, stride: int | tuple[int, ...]) -> bool:
    """Return whether the product is faster; only on types that ``fold`` knows."""
    channels, strided = weight.shape[1], max(_pair(stride)) > 1
    few = channels == 1 or (channels <= _FEW and strided)
    known = weight.dtype in (torch.float32, torch.float64)
    return few and known and weight.device.type == "cpu"


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes * 2 if len(sizes) == 1 else sizes


class _FewChannels(torch.autograd.Function):
    """A convolution whose gradient is a matrix product and a fold."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, window: _Window
    ) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.window, ctx.size = window, images.shape[2:]
        return torch.conv2d(images, weight, bias, *window)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (weight,) = ctx.saved_tensors
        stride, padding, dilation = ctx.window
        grad = (
            transposed_convolution.transposed(
                weight, stride[0], padding, grads[0], ctx.size
            )
            if weight.shape[1] > 1 and ctx.window.interleaves
            else F.fold(
                _columns(weight, grads[0]),
                ctx.size,
                weight.shape[2:],
                dilation,
                padding,
                stride,
            )
        )
        return grad, None, None, None


def _columns(weight: Tensor, grad: Tensor) -> Tensor:
    """Return the product, ``(batch, channels x window, places)``."""
    matrix = weight.flatten(1)
    if grad.is_contiguous():
        return matrix.T @ grad.flatten(2)
    places = grad.permute(0, 2, 3, 1).flatten(1, 2)  # no copy where it is channels-last
    return (places @ matrix).transpose(1, 2)
