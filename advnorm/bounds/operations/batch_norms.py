r"""Batch norms, and norms with branches.

Batch norm is affine once its moments are known: the running ones in evaluation, and in
training those of the clean batch, which also move the running ones (sridhar2021, Alg. 1):

.. math::
    m_p = \gamma \frac{(\overline z + \underline z) / 2 - \mu}{\sqrt{\sigma^2 + c}} + \beta,
    \qquad
    d_p = |\gamma| \frac{(\overline z - \underline z) / 2}{\sqrt{\sigma^2 + c}}
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm import ranks
from advnorm.bounds import interval_kernels, linear_forms
from advnorm.bounds.box import Box, between, scaled
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations.entry import Call, Operation, register
from advnorm.norms import (
    AffineNorm,
    BatchNorm,
    BorrowedNorm,
    BranchedNorm,
    DualNorm,
    MedianNorm,
    MixtureNorm,
)
from advnorm.norms.median import measure_median
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import Moments, measure_moments, to_single, update_running

Coefficients = tuple[Tensor, Tensor]


def batch_interval(layer: _BatchNorm, box: Box) -> Box:
    """Normalize the clean map and both bounds by the same moments (Alg. 1)."""
    by_hand = not _synced(layer) and not isinstance(layer, MedianNorm)
    if uses_batch(layer) and box.copies == 2 and by_hand:
        return _by_clean(layer, box)
    factor, shift = coefficients(layer, moments(layer, box), len(box.shape))
    return scaled(box, factor, shift)


def _branched_interval(layer: BranchedNorm, box: Box) -> Box:
    """Take the branch of the route, with its running statistics."""
    if layer.route.clean is not None:
        raise ValueError("route a whole batch to one branch: route(model, domain=...)")
    branch = layer.branch(layer.route.domain)
    if uses_batch(branch):
        raise ValueError(
            f"a {type(layer).__name__} keeps the domains apart, where Alg. 1 of "
            "sridhar2021 normalizes both alike: train with norm 'batch', or verify in "
            "evaluation (model.eval())"
        )
    return batch_interval(branch, box)


def _dual_interval(layer: DualNorm, box: Box) -> Box:
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
    return scale_channels(layer, bounds)


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
    statistics = measure_moments(box.clean)
    if updates_running(layer):
        update_running(layer, statistics)
    return statistics


def _synced(layer: _BatchNorm) -> bool:
    return ranks.size() > 1 and bool(getattr(layer, "sync", False))


def _by_clean(layer: _BatchNorm, box: Box) -> Box:
    """Normalize by the clean batch's moments, derivatives by hand."""
    wide = Box(to_single(box.lead), to_single(box.radius))
    layer._check_input_dim(wide.radius)  # type: ignore[no-untyped-call]
    if wide.radius.numel() <= layer.num_features:
        measure_moments(wide.radius)  # refuses, in our words
    ones = wide.radius.new_ones(layer.num_features)
    weight = ones if layer.weight is None else to_single(layer.weight)
    bias = 0 * ones if layer.bias is None else to_single(layer.bias)
    lead, radius, statistics = interval_kernels.normalize(wide, weight, bias, layer.eps)
    if updates_running(layer):
        update_running(layer, statistics)
    return Box(lead.to(box.lead.dtype), radius.to(box.radius.dtype))


def coefficients(layer: _BatchNorm, statistics: Moments, ndim: int) -> Coefficients:
    """Return the factor and the shift of each feature, shaped to broadcast."""
    factor = torch.rsqrt(statistics.var + layer.eps)
    factor = factor if layer.weight is None else factor * layer.weight
    shift = -statistics.mean * factor
    shift = shift if layer.bias is None else shift + layer.bias
    shape = (1, -1, *(1,) * (ndim - 2))
    return factor.view(shape), shift.view(shape)


def _standard(branch: BatchNorm, box: Box) -> Coefficients:
    return coefficients(branch, moments(branch, box), len(box.shape))


def channel_affine(layer: _BatchNorm | BranchedNorm, box: Box) -> Coefficients:
    """Return a norm's factor and shift per feature, as its interval rule has them.

    Nothing moves here: the interval rule has moved the running statistics where so set.
    """
    if isinstance(layer, BranchedNorm):
        layer = layer.branch(layer.route.domain)
    if uses_batch(layer):
        assert box.clean is not None, "the interval rule refuses batch statistics"
        if isinstance(layer, MedianNorm):
            statistics = measure_median(box.clean)
        else:
            synced = bool(getattr(layer, "sync", False))
            statistics = measure_moments(box.clean, sync=synced)
    else:
        statistics = moments(layer, box)
    return coefficients(layer, statistics, len(box.shape))


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


def _backward(call: Call, a: Tensor, prepared: Coefficients) -> list[LinearForms]:
    return [linear_forms.through_channels(a, *prepared)]


def _size(call: Call) -> Tensor:
    """Take sizes through a norm with fixed moments, whose mean is a term too."""
    layer, size = call.target, call.box.size
    if isinstance(layer, BranchedNorm):
        layer = layer.branch(layer.route.domain)
    factor = torch.rsqrt(layer.running_var + layer.eps)
    factor = factor if layer.weight is None else factor * layer.weight.abs()
    shift = layer.running_mean.abs() * factor
    shift = shift if layer.bias is None else shift + layer.bias.abs()
    shape = (1, -1, *(1,) * (size.ndim - 2))
    scaled_size: Tensor = size * factor.view(shape) + shift.view(shape)
    return scaled_size


def _rounding(call: Call, output: Box) -> Tensor:
    return _size(call)


def scale_channels(layer: nn.Module, box: Box) -> Box:
    """Multiply by a layer's weights and add its bias, one per feature."""
    if layer.weight is None:
        return box
    shape = (1, -1, *(1,) * (len(box.shape) - 2))
    assert isinstance(layer.weight, Tensor)
    shift = 0 if layer.bias is None else layer.bias.view(shape)  # type: ignore[operator]
    return scaled(box, layer.weight.view(shape), shift)


def _dual_rounding(call: Call, output: Box) -> Tensor:
    """Return the terms of both branches, and of the gate's odds at its steepest, 1/4."""
    layer, box, size = call.target, call.box, call.box.magnitude
    terms, odds = torch.zeros_like(size), torch.zeros_like(size)
    for branch in (layer.clean, layer.adversarial):
        factor, shift = _standard(branch, box)
        value = factor.abs() * size + shift.abs()
        odds = odds + (value.square() / 2 + factor.abs().log().abs()).sum(1, keepdim=True)
        terms = terms + value
    terms = terms * (1 + odds / 4)
    if layer.weight is None:
        return terms
    shape = (1, -1, *(1,) * (len(box.shape) - 2))
    bias = 0 if layer.bias is None else layer.bias.abs().view(shape)
    weighted: Tensor = terms * layer.weight.abs().view(shape) + bias
    return weighted


_BATCH_NORM = Operation(
    layers=(nn.BatchNorm1d, nn.BatchNorm2d, BatchNorm, BorrowedNorm, MedianNorm),
    interval=batch_interval,
    backward=_backward,
    prepare=channel_affine,
    size=_size,
    rounding=_rounding,
    channel_affine=channel_affine,
    is_entrywise=True,
)
register(_BATCH_NORM)
register(
    replace(
        _BATCH_NORM,
        layers=(MixtureNorm, AffineNorm),
        interval=_branched_interval,
        is_entrywise=False,
    )
)
register(
    replace(
        _BATCH_NORM,
        layers=(nn.BatchNorm3d,),
        backward=None,
        prepare=None,
        channel_affine=None,
    )
)
register(Operation(layers=(DualNorm,), interval=_dual_interval, rounding=_dual_rounding))
