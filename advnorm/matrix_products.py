r"""Matrix products of single precision on a CPU, by oneDNN.

PyTorch multiplies float32 matrices with MKL, which keeps its widest instructions for some
makers' processors. oneDNN, which PyTorch carries for convolutions, takes what a processor
has: on one with AVX-512 that is not Intel's, its products take half of the time. A rule
about shapes chooses, and no trial, so that a resumed run chooses alike.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS = 16
"""Fewest rows of a product that are worth the call."""
_ENTRIES = 4096
"""Fewest entries of its matrix."""
_HAS_ONEDNN = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
_PRODUCT = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if _HAS_ONEDNN else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x W^T + b`` as ``torch.nn.functional.linear`` does.

    A matrix that needs a gradient is left to PyTorch.

    >>> x, weight = torch.ones(32, 64), torch.ones(128, 64)
    >>> linear(x, weight)[0, :3]
    tensor([64., 64., 64.])
    """
    if not _is_faster(x, weight, bias):
        return F.linear(x, weight, bias)
    if x.requires_grad and torch.is_grad_enabled():
        recorded: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return recorded
    return _multiply(x, weight, bias)


def matmul(x: Tensor, matrix: Tensor) -> Tensor:
    """Return ``x A`` for one matrix, whatever the leading dimensions of x."""
    return linear(x, matrix.t())


def _is_faster(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    tensors = [x, weight] if bias is None else [x, weight, bias]
    return bool(
        _PRODUCT is not None
        and all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
        and x.ndim > 1
        and weight.numel() >= _ENTRIES
        and x.numel() >= _ROWS * weight.shape[1]
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors[1:]))
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and torch.backends.mkldnn.enabled
    )


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    assert _PRODUCT is not None
    result: Tensor = _PRODUCT(x, weight.detach(), bias, "none", [], "")
    return result


class _Linear(torch.autograd.Function):
    """The product, and its gradient of x, which is one as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return matmul(grads[0], weight), None, None
