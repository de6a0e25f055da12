"""Surrogates by name: differentiable functions that stand in for a layer when searching.

A surrogate takes what the layer takes, and returns a tensor of the layer's output shape.
Only its backward pass is used.
"""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from advnorm.registry import Registry

Surrogate = Callable[..., Tensor]
"""The inputs of a layer -> a tensor of the shape of its output."""
SURROGATES: Registry[Surrogate] = Registry("surrogate")
"""The surrogates by name."""


@SURROGATES.register("identity")
def identity(x: Tensor, *_: object, **__: object) -> Tensor:
    """Pass the gradient as it is (straight-through): rounding, JPEG, feature sparsity."""
    return x


@SURROGATES.register("softplus")
def softplus(x: Tensor, *_: object, **__: object) -> Tensor:
    """Use the gradient of softplus: rectifiers and steps that are flat below 0."""
    return F.softplus(x)


@SURROGATES.register("sigmoid")
def sigmoid(x: Tensor, *_: object, **__: object) -> Tensor:
    """Use the gradient of the sigmoid: hard thresholds and gates."""
    return x.sigmoid()


@SURROGATES.register("tanh")
def tanh(x: Tensor, *_: object, **__: object) -> Tensor:
    """Use the gradient of tanh: signs and binary activations."""
    return x.tanh()


@SURROGATES.register("hard_tanh")
def hard_tanh(x: Tensor, *_: object, **__: object) -> Tensor:
    """Pass the gradient where an input is in [-1, 1] (Courbariaux et al., 2016)."""
    return F.hardtanh(x)
