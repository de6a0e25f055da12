r"""Normalization of one domain: batch (any constant c), group, instance, layer, none.

A norm is a ``Callable[[int], nn.Module]`` from a number of features to a layer. The layers
here take feature maps ``(batch, features, height, width)`` and vectors
``(batch, features)`` alike, so that one argument serves a whole network; instance norm,
which needs more than one value a feature, takes maps alone.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.registry import Registry

Norm = Callable[[int], nn.Module]
NORMS: Registry[Callable[..., Norm]] = Registry("norm")


class BatchNorm(_BatchNorm):
    r"""Batch normalization (Ioffe & Szegedy, 2015), of vectors and of feature maps.

    .. math::
        \hat x = \gamma \frac{x - \mu}{\sqrt{\sigma^2 + c}} + \beta

    The parameters and buffers are those of ``nn.BatchNorm1d`` and ``nn.BatchNorm2d``; the
    constant :math:`c` of galloway2019 is ``eps``.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch norm wants (batch, features, ...), not {input.shape}")


@NORMS.register("batch")
def batch(*, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True) -> Norm:
    """Batch norm with any constant c (``eps``) and momentum."""
    return partial(BatchNorm, eps=eps, momentum=momentum, affine=affine)


@NORMS.register("group")
def group(*, groups: int = 32, eps: float = 1e-5, affine: bool = True) -> Norm:
    """Group norm (Wu & He, 2018): the largest divisor of the features up to ``groups``."""

    def build(features: int) -> nn.Module:
        count = next(g for g in range(min(groups, features), 0, -1) if features % g == 0)
        return nn.GroupNorm(count, features, eps=eps, affine=affine)

    return build


@NORMS.register("layer")
def layer(*, eps: float = 1e-5, affine: bool = True) -> Norm:
    """Layer norm (Ba et al., 2016): one group of all features, a sample at a time."""
    return group(groups=1, eps=eps, affine=affine)


@NORMS.register("instance")
def instance(*, eps: float = 1e-5, affine: bool = True) -> Norm:
    """Instance norm (Ulyanov et al., 2016): each feature map of each sample by itself."""
    return partial(nn.InstanceNorm2d, eps=eps, affine=affine)


@NORMS.register("none")
def none() -> Norm:
    """No normalization."""

    def build(features: int) -> nn.Module:
        return nn.Identity()

    return build
