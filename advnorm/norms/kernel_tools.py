"""Helpers of the hand-written autograd functions of the norms."""

import torch
from torch import Tensor

from advnorm.norms.moments import to_single


def affine_parameters(
    weight: Tensor | None, bias: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gamma and beta in single precision or wider; 1 and 0 if there are none.

    ``like`` has one value per feature, in the precision and on the device of the result.
    """
    w = torch.ones_like(like) if weight is None else to_single(weight)
    return w, torch.zeros_like(like) if bias is None else to_single(bias)


def refuse_second_derivative(norm: str, remedy: str) -> None:
    """Refuse to be differentiated twice: a hand-written derivative has no graph."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"a {norm} norm can be differentiated only once: {remedy}")


TWICE = (
    "for second derivatives, run the forward and backward passes inside 'with "
    "norms.twice_differentiable(model):'"
)
"""What to do with norms that are also written in plain PyTorch."""
