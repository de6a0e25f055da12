r"""Norms for one domain: batch (with any constant c), group, instance, layer, none.

A norm is a ``Callable[[int], nn.Module]`` from a number of features to a layer. The layers
here accept feature maps ``(batch, features, height, width)`` and vectors
``(batch, features)``, so that one argument serves a whole network. Instance norm needs more
than one value per feature and accepts feature maps only.
"""

from collections.abc import Callable
from functools import partial
from inspect import Signature, signature
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm import ranks
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import Moments, measure_moments, to_single, update_running
from advnorm.registry import Registry

Norm = Callable[[int], nn.Module]
"""A number of features -> the layer that normalizes them."""
NORMS: Registry[Callable[..., Norm]] = Registry("norm")
"""Each maps its options to a :data:`Norm`."""
L = TypeVar("L", bound=nn.Module)


def register_layer(name: str) -> Callable[[type[L]], type[L]]:
    """Register a layer's class as a norm, whose options are those of the class."""

    def register(layer: type[L]) -> type[L]:
        def norm(**options: Any) -> Norm:
            return partial(layer, **options)

        norm.__doc__, norm.__name__ = layer.__doc__, name
        norm.__annotations__ = layer.__init__.__annotations__
        parameters = signature(layer).parameters.values()
        options = [p for p in parameters if p.default is not p.empty]
        vars(norm)["__signature__"] = Signature(options)
        NORMS.register(name)(norm)
        return layer

    return register


class BatchNorm(_BatchNorm):
    r"""Batch normalization (Ioffe & Szegedy, 2015), of vectors and of feature maps.

    .. math::
        \hat x = \gamma \frac{x - \mu}{\sqrt{\sigma^2 + c}} + \beta

    The parameters and buffers are those of ``nn.BatchNorm1d`` and ``nn.BatchNorm2d``; the
    constant :math:`c` of galloway2019 is ``eps``. With ``sync`` the batch moments are those
    of all ranks.
    """

    dims: int | None = None
    """Number of dimensions of the last input; :func:`advnorm.norms.collapse` needs it."""

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
                "a norm needs eps >= 0 and a momentum from 0 to 1 (or None), not "
                f"eps={eps:g} and momentum={momentum}"
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
                f"a norm of {self.num_features} features needs an input of shape (batch, "
                f"{self.num_features}, ...), not {tuple(input.shape)}"
            )
        if not torch.compiler.is_compiling():  # a side effect would break the graph
            self.dims = input.dim()

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``(batch, features, ...)``."""
        if self.sync and ranks.size() > 1 and uses_batch(self):
            return self.normalize(input, self.moments(input))
        self._check_input_dim(input)
        if uses_batch(self) and input.numel() <= self.num_features:
            measure_moments(input)  # refuses it with a clearer message than PyTorch
        return super().forward(input)

    def moments(self, x: Tensor) -> Moments:
        """Measure ``x``, and update the running statistics if the mode says so."""
        self._check_input_dim(x)
        moments = measure_moments(x, sync=self.sync)
        if updates_running(self):
            update_running(self, moments)
        return moments

    def normalize(self, x: Tensor, moments: Moments) -> Tensor:
        """Normalize ``x`` by the moments, with gradients to both."""
        return affine(x, moments, self.eps, self.weight, self.bias)


def affine(
    x: Tensor, moments: Moments, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    r"""Return :math:`\gamma (x - \mu) / \sqrt{\sigma^2 + c} + \beta`, in x's precision."""
    scale = torch.rsqrt(moments.var + eps)
    scale = scale if weight is None else scale * weight
    shift = -moments.mean * scale
    shift = shift if bias is None else shift + bias
    shape = (1, -1, *(1,) * (x.ndim - 2))
    return (to_single(x) * scale.view(shape) + shift.view(shape)).to(x.dtype)


def scale_features(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    r"""Return :math:`\gamma x + \beta`, one pair per feature, in x's precision."""
    shape = (1, -1, *(1,) * (x.ndim - 2))
    y = to_single(x)
    y = y if weight is None else y * weight.view(shape)
    return (y if bias is None else y + bias.view(shape)).to(x.dtype)


@NORMS.register("batch")
def batch(
    *,
    eps: float = 1e-5,
    momentum: float | None = 0.1,
    affine: bool = True,
    sync: bool = False,
    start: str = "ones",
) -> Norm:
    r"""Batch norm (Ioffe & Szegedy, 2015) with any constant c (``eps``) and momentum.

    ``start=uniform`` draws the initial :math:`\gamma` from U(0, 1), as PyTorch did before
    1.2. The parameters of galloway2019 are "randomly initialized and learnable" (Table 1).
    """
    if start not in ("ones", "uniform"):
        raise ValueError(f"start must be 'ones' or 'uniform', not {start!r}")
    if start == "uniform" and not affine:
        raise ValueError("start='uniform' needs affine weights: set affine=true")
    make = partial(BatchNorm, eps=eps, momentum=momentum, affine=affine, sync=sync)

    def make_uniform(features: int) -> nn.Module:
        layer = make(features)
        nn.init.uniform_(layer.weight)
        return layer

    return make if start == "ones" else make_uniform


@NORMS.register("group")
def group(*, groups: int = 32, eps: float = 1e-5, affine: bool = True) -> Norm:
    """Group norm (Wu & He, 2018): at most ``groups`` groups of two or more features.

    The number of groups is the largest divisor of the features that fits. A group of one
    feature of a vector would be normalized to zero.
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
    """Layer norm (Ba et al., 2016): all features of a sample together."""
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
