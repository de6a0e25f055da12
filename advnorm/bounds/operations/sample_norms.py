r"""Norms that measure each sample: group, instance and layer norm."""

from math import prod

import torch
from torch import Tensor, nn

from advnorm.bounds.box import Box, between, scaled
from advnorm.bounds.operations.batch_norms import scale_channels
from advnorm.bounds.operations.entry import Call, Operation, register


def _group_interval(layer: nn.GroupNorm, box: Box) -> Box:
    r"""Bound what is centred, the deviation, and their quotient.

    With :math:`d = x - \bar x` of n values, :math:`d_j \in [\underline d_j, \overline d_j]`
    is exact, :math:`\sigma^2 = \operatorname{mean} d^2` lies between the means of the least
    and the largest squares, and :math:`|d_j| / \sigma \le \sqrt{n - 1}` always.
    """
    return scale_channels(layer, _normalized(box, _groups(layer, box), layer.eps))


def _instance_interval(layer: nn.InstanceNorm2d, box: Box) -> Box:
    """Bound each feature map as a group of its own."""
    if layer.track_running_stats:
        raise NotImplementedError("it keeps running statistics: use batch norm")
    dimensions = 3 if isinstance(layer, nn.InstanceNorm1d) else 4
    if len(box.shape) != dimensions:  # torch takes the samples for the maps of one image
        raise NotImplementedError(
            f"it takes values of {dimensions} dimensions, samples and maps first, not of "
            f"{len(box.shape)}"
        )
    return scale_channels(layer, _normalized(box, _groups(layer, box), layer.eps))


def _layer_interval(layer: nn.LayerNorm, box: Box) -> Box:
    """Bound the last dimensions, each place by itself."""
    last = len(box.shape) - len(layer.normalized_shape)
    if last < 1:
        raise NotImplementedError("it mixes the samples of a batch")
    normalized = _normalized(box, _groups(layer, box), layer.eps)
    if layer.weight is None:
        return normalized
    return scaled(normalized, layer.weight, 0 if layer.bias is None else layer.bias)


def _centred(box: Box, groups: int) -> tuple[Tensor, Tensor]:
    """Return bounds on the values less the mean of their group, a row per group."""
    rows, n = box.shape[0], box.shape[1:].numel() // groups
    centre, radius = (x.reshape(rows, groups, n) for x in (box.centre, box.radius))
    middle = centre - centre.mean(2, keepdim=True)
    # x_j - mean: its own radius counts (1 - 1/n) times, the others' 1/n
    spread = radius * (1 - 2 / n) + radius.mean(2, keepdim=True)
    return middle - spread, middle + spread


def _groups(layer: nn.Module, box: Box) -> int:
    if isinstance(layer, nn.GroupNorm):
        return layer.num_groups
    if isinstance(layer, nn.LayerNorm):
        return prod(box.shape[1 : len(box.shape) - len(layer.normalized_shape)])
    return box.shape[1]


def _rounding(call: Call, output: Box) -> Tensor:
    r"""Return the terms of a norm that measures: :math:`t (1 + |y|)`.

    Of :math:`y = (x - \bar x) / \sigma` the terms are :math:`t = \max |x| / \sigma`, and
    of :math:`\sigma` itself, which a unit of roundoff of x takes off by t units, as many.
    """
    layer, box = call.target, call.box
    groups = _groups(layer, box)
    rows, n = box.shape[0], box.shape[1:].numel() // groups
    low, high = _centred(box, groups)
    least = torch.maximum(low, -high).clamp(min=0).square().mean(2, keepdim=True)
    size = box.magnitude.reshape(rows, groups, n).amax(2, keepdim=True)
    size = size * torch.rsqrt(least + layer.eps)
    value = (2 * size).clamp(max=max(n - 1, 0) ** 0.5)
    terms = (size * (1 + value)).expand(-1, -1, n).reshape(box.shape)
    if layer.weight is None:
        return terms
    last = isinstance(layer, nn.LayerNorm)
    shape = layer.weight.shape if last else (1, -1, *(1,) * (len(box.shape) - 2))
    shift = 0 if layer.bias is None else layer.bias.abs().view(shape)
    weighted: Tensor = terms * layer.weight.abs().view(shape) + shift
    return weighted


def _normalized(box: Box, groups: int, eps: float) -> Box:
    """Return bounds on the values of each group, centred and divided by the deviation."""
    rows, n = box.shape[0], box.shape[1:].numel() // groups
    low, high = _centred(box, groups)
    most = torch.maximum(low.abs(), high.abs()).square().mean(2, keepdim=True)
    least = torch.maximum(low, -high).clamp(min=0).square().mean(2, keepdim=True)
    slow, fast = torch.rsqrt(most + eps), torch.rsqrt(least + eps)
    limit = max(n - 1, 0) ** 0.5
    lower = torch.minimum(low * slow, low * fast).clamp(min=-limit).view(box.shape)
    upper = torch.maximum(high * slow, high * fast).clamp(max=limit).view(box.shape)
    if box.clean is None:
        return between(None, lower, upper)
    clean = box.clean.reshape(rows, groups, n)
    clean = nn.functional.layer_norm(clean, (n,), eps=eps).view(box.shape)
    return between(clean, lower, upper)


register(Operation(layers=(nn.GroupNorm,), interval=_group_interval, rounding=_rounding))
register(
    Operation(
        layers=(nn.InstanceNorm1d, nn.InstanceNorm2d),
        interval=_instance_interval,
        rounding=_rounding,
    )
)
register(Operation(layers=(nn.LayerNorm,), interval=_layer_interval, rounding=_rounding))
