r"""Normalization of one domain: batch (any constant c), group, instance, layer, none.

A norm is a ``Callable[[int], nn.Module]`` from a number of features to a layer. The layers
here take feature maps ``(batch, features, height, width)`` and vectors
``(batch, features)`` alike, so that one argument serves a whole network; instance norm,
which needs more than one value a feature, takes maps alone.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import Moments, measure_moments, ranks, to_single, update_running
from advnorm.registry import Registry

Norm = Callable[[int], nn.Module]
NORMS: Registry[Callable[..., Norm]] = Registry("norm")


class BatchNorm(_BatchNorm):
    r"""Batch normalization (Ioffe & Szegedy, 2015), of vectors and of feature maps.

    .. math::
        \hat x = \gamma \frac{x - \mu}{\sqrt{\sigma^2 + c}} + \beta

    The parameters and buffers are those of ``nn.BatchNorm1d`` and ``nn.BatchNorm2d``; the
    constant :math:`c` of galloway2019 is ``eps``. With ``sync`` the batch moments are those
    of all ranks.
    """

    dims: int | None = None
    """Dimensions of the input it last saw; :func:`advnorm.norms.collapse` needs them."""

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        sync: bool = False,
    ) -> None:
        if eps < 0 or (momentum is not None and not 0 <= momentum <= 1):
            raise ValueError(
                f"a norm needs eps >= 0 and a momentum from 0 to 1 (or none), not {eps:g} "
                f"and {momentum}"
            )
        super().__init__(
            num_features,
            eps=eps,
            momentum=momentum,
            affine=affine,
            track_running_stats=track_running_stats,
        )
        self.sync = sync

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"a norm of {self.num_features} features wants (batch, features, ...), not "
                f"{tuple(input.shape)}"
            )
        if not torch.compiler.is_compiling():  # a side effect would end a compiled block
            self.dims = input.dim()

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``(batch, features, ...)``."""
        if self.sync and ranks() > 1 and uses_batch(self):
            return self.normalize(input, self.moments(input))
        self._check_input_dim(input)
        if uses_batch(self) and input.numel() <= self.num_features:
            measure_moments(input)  # refuses, in our words
        return super().forward(input)

    def moments(self, x: Tensor) -> Moments:
        """Measure ``x``, and move the running statistics where the mode says so."""
        self._check_input_dim(x)
        moments = measure_moments(x, sync=self.sync)
        if updates_running(self):
            update_running(self, moments)
        return moments

    def normalize(self, x: Tensor, moments: Moments) -> Tensor:
        """Normalize ``x`` by given moments, with gradients to both."""
        return affine(x, moments, self.eps, self.weight, self.bias)


def affine(
    x: Tensor, moments: Moments, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    r"""Return :math:`\gamma (x - \mu) / \sqrt{\sigma^2 + c} + \beta`, precision kept."""
    scale = torch.rsqrt(moments.var + eps)
    scale = scale if weight is None else scale * weight
    shift = -moments.mean * scale
    shift = shift if bias is None else shift + bias
    shape = (1, -1, *(1,) * (x.ndim - 2))
    return (to_single(x) * scale.view(shape) + shift.view(shape)).to(x.dtype)


@NORMS.register("batch")
def batch(
    *,
    eps: float = 1e-5,
    momentum: float | None = 0.1,
    affine: bool = True,
    sync: bool = False,
    start: str = "ones",
) -> Norm:
    r"""Batch norm with any constant c (``eps``) and momentum.

    A ``start`` of ``uniform`` draws :math:`\gamma` from U(0, 1), as PyTorch did before 1.2:
    galloway2019 has parameters that are "randomly initialized and learnable" (Table 1).
    """
    if start not in ("ones", "uniform") or (start == "uniform" and not affine):
        raise ValueError(
            f"the weights of batch norm start as ones or, where it has any, uniform; not "
            f"{start!r} with affine={affine}"
        )
    make = partial(BatchNorm, eps=eps, momentum=momentum, affine=affine, sync=sync)

    def drawn(features: int) -> nn.Module:
        layer = make(features)
        nn.init.uniform_(layer.weight)
        return layer

    return make if start == "ones" else drawn


@NORMS.register("group")
def group(*, groups: int = 32, eps: float = 1e-5, affine: bool = True) -> Norm:
    """Group norm (Wu & He, 2018) of at most ``groups`` groups, two features or more each.

    The number of groups is the largest divisor of the features that fits: a vector's group
    of one feature would be normalized to zero.
    """
    if groups < 1:
        raise ValueError(f"group norm needs at least one group, not {groups}")

    def build(features: int) -> nn.Module:
        most = max(1, min(groups, features // 2))
        count = next(g for g in range(most, 0, -1) if features % g == 0)
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
