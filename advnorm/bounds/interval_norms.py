r"""Interval rules of normalization layers.

Batch norm is affine once its moments are known: the running ones in evaluation, and in
training those of the clean batch, which also move the running ones (sridhar2021, Alg. 1):

.. math::
    m_p = \gamma \frac{(\overline z + \underline z) / 2 - \mu}{\sqrt{\sigma^2 + c}} + \beta,
    \qquad
    d_p = |\gamma| \frac{(\overline z - \underline z) / 2}{\sqrt{\sigma^2 + c}}
"""

from math import prod

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.bounds import interval_kernels
from advnorm.bounds.box import Box, between
from advnorm.bounds.interval import layer_rule
from advnorm.bounds.interval_linear import scaled
from advnorm.bounds.rounding import terms_rule
from advnorm.norms import BatchNorm, BorrowedNorm, DualNorm, MixtureNorm
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import Moments, measure_moments, ranks, to_single, update_running


@layer_rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNorm, BorrowedNorm)
def batch(layer: _BatchNorm, box: Box) -> Box:
    """Normalize the clean map and both bounds by the same moments (Alg. 1)."""
    if uses_batch(layer) and box.copies == 2 and not _synced(layer):
        return _by_clean(layer, box)
    factor, shift = coefficients(layer, moments(layer, box), len(box.shape))
    return scaled(box, factor, shift)


@layer_rule(MixtureNorm)
def mixture(layer: MixtureNorm, box: Box) -> Box:
    """Take the branch of the route, with its running statistics."""
    if layer.route.clean is not None:
        raise ValueError("route a whole batch to one branch: route(model, domain=...)")
    branch = layer.of(layer.route.domain)
    if uses_batch(branch):
        raise ValueError(
            "a mixture norm keeps the domains apart, where Alg. 1 of sridhar2021 gives "
            "both the clean batch's moments: train with norm 'batch', or verify in "
            "evaluation (model.eval())"
        )
    return batch(branch, box)


@layer_rule(DualNorm)
def dual(layer: DualNorm, box: Box) -> Box:
    r"""Bound the gate, then its mixture of two increasing maps.

    For :math:`p \in [\underline p, \overline p]` the value is increasing in :math:`x` and
    affine in :math:`p`, so its least value is at the lower end of :math:`x` and one of the
    ends of :math:`p`. The log-odds are a sum over features of parabolas in :math:`x_j`.
    """
    if uses_batch(layer.clean) or uses_batch(layer.adversarial):
        raise ValueError(
            "a dual norm's gate tells apart clean and adversarial batches, and bounds are "
            "neither: train with norm 'batch', or verify in evaluation (model.eval())"
        )
    (a, s), (b, t) = (_standard(branch, box) for branch in (layer.clean, layer.adversarial))
    lower, upper = box.lower, box.upper
    low, high = _odds((a, s), (b, t), lower, upper)
    gates = [torch.sigmoid(odds).unsqueeze(1) for odds in (low, high)]

    def ends(x: Tensor) -> tuple[Tensor, Tensor]:
        u, v = a * x + s, b * x + t
        first, second = (v + p * (u - v) for p in gates)
        return torch.minimum(first, second), torch.maximum(first, second)

    bounds = between(None, ends(lower)[0], ends(upper)[1])
    if box.clean is not None:
        odds = _odds((a, s), (b, t), box.clean, box.clean)[0]
        p, u, v = torch.sigmoid(odds).unsqueeze(1), a * box.clean + s, b * box.clean + t
        bounds = Box(torch.cat([v + p * (u - v), bounds.lead]), bounds.radius)
    return _affine(layer, bounds)


@layer_rule(nn.GroupNorm)
def group(layer: nn.GroupNorm, box: Box) -> Box:
    r"""Bound what is centred, the deviation, and their quotient.

    With :math:`d = x - \bar x` of n values, :math:`d_j \in [\underline d_j, \overline d_j]`
    is exact, :math:`\sigma^2 = \operatorname{mean} d^2` lies between the means of the least
    and the largest squares, and :math:`|d_j| / \sigma \le \sqrt{n - 1}` always.
    """
    return _affine(layer, _normalized(box, _groups(layer, box), layer.eps))


@layer_rule(nn.InstanceNorm1d, nn.InstanceNorm2d)
def instance(layer: nn.InstanceNorm2d, box: Box) -> Box:
    """Bound each feature map as a group of its own."""
    if layer.track_running_stats:
        raise NotImplementedError("it keeps running statistics: use batch norm")
    dimensions = 3 if isinstance(layer, nn.InstanceNorm1d) else 4
    if len(box.shape) != dimensions:  # torch takes the samples for the maps of one image
        raise NotImplementedError(
            f"it takes values of {dimensions} dimensions, samples and maps first, not of "
            f"{len(box.shape)}"
        )
    return _affine(layer, _normalized(box, _groups(layer, box), layer.eps))


@layer_rule(nn.LayerNorm)
def layer(layer: nn.LayerNorm, box: Box) -> Box:
    """Bound the last dimensions, each place by itself."""
    last = len(box.shape) - len(layer.normalized_shape)
    if last < 1:
        raise NotImplementedError("it mixes the samples of a batch")
    found = _normalized(box, _groups(layer, box), layer.eps)
    if layer.weight is None:
        return found
    return scaled(found, layer.weight, 0 if layer.bias is None else layer.bias)


def moments(layer: _BatchNorm, box: Box) -> Moments:
    """Return whose moments normalize: the clean batch's, moved where so set, or running."""
    if not uses_batch(layer):
        mean, var = layer.running_mean, layer.running_var
        assert mean is not None and var is not None
        return Moments(mean, var, 0)
    if box.clean is None and layer.running_mean is None:
        raise ValueError(
            "it keeps no running statistics (track_running_stats=False), so that its "
            "answer for one image depends on the others and nothing holds for the image "
            "alone"
        )
    if box.clean is None:
        raise ValueError(
            "it normalizes with batch statistics now, so that its answer for one image "
            "depends on the others and nothing holds for the image alone: call "
            "model.eval(), or use norms.mode(model, 'running')"
        )
    if isinstance(layer, BatchNorm):
        return layer.moments(box.clean)
    found = measure_moments(box.clean)
    if updates_running(layer):
        update_running(layer, found)
    return found


def _synced(layer: _BatchNorm) -> bool:
    return ranks() > 1 and bool(getattr(layer, "sync", False))


def _by_clean(layer: _BatchNorm, box: Box) -> Box:
    """Normalize by the clean batch's moments, derivatives by hand."""
    wide = Box(to_single(box.lead), to_single(box.radius))
    layer._check_input_dim(wide.radius)  # type: ignore[no-untyped-call]
    if wide.radius.numel() <= layer.num_features:
        measure_moments(wide.radius)  # refuses, in our words
    one = wide.radius.new_ones(layer.num_features)
    weight = one if layer.weight is None else to_single(layer.weight)
    bias = 0 * one if layer.bias is None else to_single(layer.bias)
    lead, radius, found = interval_kernels.normalize(wide, weight, bias, layer.eps)
    if updates_running(layer):
        update_running(layer, found)
    return Box(lead.to(box.lead.dtype), radius.to(box.radius.dtype))


def coefficients(layer: _BatchNorm, found: Moments, ndim: int) -> tuple[Tensor, Tensor]:
    """Return the factor and the shift of each feature, shaped to broadcast."""
    factor = torch.rsqrt(found.var + layer.eps)
    factor = factor if layer.weight is None else factor * layer.weight
    shift = -found.mean * factor
    shift = shift if layer.bias is None else shift + layer.bias
    shape = (1, -1, *(1,) * (ndim - 2))
    return factor.view(shape), shift.view(shape)


def _standard(branch: BatchNorm, box: Box) -> tuple[Tensor, Tensor]:
    return coefficients(branch, moments(branch, box), len(box.shape))


def _affine(layer: nn.Module, box: Box) -> Box:
    if layer.weight is None:
        return box
    shape = (1, -1, *(1,) * (len(box.shape) - 2))
    assert isinstance(layer.weight, Tensor)
    shift = 0 if layer.bias is None else layer.bias.view(shape)  # type: ignore[operator]
    return scaled(box, layer.weight.view(shape), shift)


Coefficients = tuple[Tensor, Tensor]


def _odds(
    clean: Coefficients, other: Coefficients, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """Return bounds on the log-odds of the clean domain, summed over the features."""
    (a, s), (b, t) = clean, other
    square, slope = (b * b - a * a) / 2, b * t - a * s
    rest = (t * t - s * s) / 2 + (a / b).log()

    def value(x: Tensor) -> Tensor:
        return (square * x + slope) * x + rest

    bottom = -slope / torch.where(square == 0, torch.ones_like(square), 2 * square)
    turn = torch.minimum(torch.maximum(lower, bottom), upper)
    turn = torch.where(square == 0, lower, turn)
    ends = torch.stack([value(lower), value(upper), value(turn)])
    return ends.amin(0).sum(1), ends.amax(0).sum(1)


def _centred(box: Box, groups: int) -> tuple[Tensor, Tensor]:
    """Return bounds on the values less the mean of their group, a row a group."""
    rows, n = box.shape[0], box.shape[1:].numel() // groups
    centre, radius = (x.reshape(rows, groups, n) for x in (box.centre, box.radius))
    middle = centre - centre.mean(2, keepdim=True)
    # x_j - mean: its own radius counts (1 - 1/n) times, the others' 1/n
    reach = radius * (1 - 2 / n) + radius.mean(2, keepdim=True)
    return middle - reach, middle + reach


def _groups(layer: nn.Module, box: Box) -> int:
    if isinstance(layer, nn.GroupNorm):
        return layer.num_groups
    if isinstance(layer, nn.LayerNorm):
        return prod(box.shape[1 : len(box.shape) - len(layer.normalized_shape)])
    return box.shape[1]


@terms_rule(nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.LayerNorm)
def deviation_terms(layer: nn.Module, box: Box) -> Tensor:
    r"""Return the terms of a norm that measures: :math:`t (1 + |y|)`.

    Of :math:`y = (x - \bar x) / \sigma` the terms are :math:`t = \max |x| / \sigma`, and
    of :math:`\sigma` itself, which a unit of roundoff of x takes off by t units, as many.
    """
    groups = _groups(layer, box)
    rows, n = box.shape[0], box.shape[1:].numel() // groups
    low, high = _centred(box, groups)
    least = torch.maximum(low, -high).clamp(min=0).square().mean(2, keepdim=True)
    size = (box.centre.abs() + box.radius).reshape(rows, groups, n).amax(2, keepdim=True)
    assert isinstance(layer.eps, float)
    size = size * torch.rsqrt(least + layer.eps)
    value = (2 * size).clamp(max=max(n - 1, 0) ** 0.5)
    found = (size * (1 + value)).expand(-1, -1, n).reshape(box.shape)
    if layer.weight is None:
        return found
    assert isinstance(layer.weight, Tensor)
    last = isinstance(layer, nn.LayerNorm)
    shape = layer.weight.shape if last else (1, -1, *(1,) * (len(box.shape) - 2))
    shift = 0 if layer.bias is None else layer.bias.abs().view(shape)  # type: ignore[operator]
    return found * layer.weight.abs().view(shape) + shift


@terms_rule(DualNorm)
def dual_terms(layer: DualNorm, box: Box) -> Tensor:
    """Return the terms of both branches, and of the gate's odds at its steepest, 1/4."""
    size = box.centre.abs() + box.radius
    found, odds = torch.zeros_like(size), torch.zeros_like(size)
    for branch in (layer.clean, layer.adversarial):
        factor, shift = _standard(branch, box)
        value = factor.abs() * size + shift.abs()
        odds = odds + (value.square() / 2 + factor.abs().log().abs()).sum(1, keepdim=True)
        found = found + value
    found = found * (1 + odds / 4)
    if layer.weight is None:
        return found
    shape = (1, -1, *(1,) * (len(box.shape) - 2))
    bias = 0 if layer.bias is None else layer.bias.abs().view(shape)
    return found * layer.weight.abs().view(shape) + bias


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
