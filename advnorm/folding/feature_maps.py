r"""Norms with fixed statistics as what they are: :math:`x \mapsto s x + t`, per feature."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.norms import (
    AffineNorm,
    BatchNorm,
    BorrowedNorm,
    BranchedNorm,
    DualNorm,
    MedianNorm,
    MixtureNorm,
)
from advnorm.norms.mode import uses_batch

_PLAIN = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    *(BatchNorm, BorrowedNorm, MedianNorm),
)
_BRANCHED = (MixtureNorm, AffineNorm)


class FeatureMap(NamedTuple):
    """A scale and a shift, one number per feature, in double precision."""

    scale: Tensor
    shift: Tensor


Constants = Mapping[int, Any]
"""Parameters, buffers and what is computed from them, by their number in the graph."""
MapSource = Callable[[Constants], FeatureMap]
"""Reads the map anew, from weights and statistics that may have moved."""


def is_foldable(layer: nn.Module) -> bool:
    """Tell whether a layer is a norm that is a map per feature while its statistics are."""
    return type(layer) in (*_PLAIN, *_BRANCHED)


def is_fixed(layer: nn.Module) -> bool:
    """Tell whether a norm now uses running statistics, of one branch where it has them."""
    if isinstance(layer, DualNorm):
        collects = layer._terms is not None
        return not (uses_batch(layer.clean) or uses_batch(layer.adversarial) or collects)
    if isinstance(layer, BranchedNorm) and layer.route.clean is not None:
        return False
    return not uses_batch(_norm_of(layer))


def map_of_norm(layer: nn.Module, constants: Constants) -> FeatureMap:
    r"""Return :math:`s = \gamma / \sqrt{\sigma^2 + c}` and :math:`t = \beta - s \mu`.

    Those of the branch of the present route, where there are branches.
    """
    norm = _norm_of(layer)
    mean, var = norm.running_mean, norm.running_var
    assert mean is not None and var is not None
    scale = torch.rsqrt(var.detach().double() + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.detach()
    shift = -scale * mean.detach()
    if norm.bias is not None:
        shift = shift + norm.bias.detach()
    return FeatureMap(scale, shift)


def map_of_standardization(mean: Tensor, std: Tensor) -> FeatureMap:
    r"""Return the map :math:`(x - \mu) / \sigma`; one number may serve all features."""
    scale = 1 / std.detach().double()
    return FeatureMap(scale, -mean.detach() * scale)


def _norm_of(layer: nn.Module) -> _BatchNorm:
    norm = layer.branch(layer.route.domain) if isinstance(layer, BranchedNorm) else layer
    assert isinstance(norm, _BatchNorm)
    return norm
