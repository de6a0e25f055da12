r"""Batch norms whose statistics an adversary perturbs inside a block (apart2022).

.. math::
    \mathrm{BN}(x; \delta_\mu, \delta_\sigma) = \gamma (1 + \delta_\sigma)
    \frac{x - (1 + \delta_\mu) \hat\mu}{\hat\sigma} + \beta \qquad \text{(Eq. 3)}

each feature by itself. :math:`\delta_\mu, \delta_\sigma` belong to the block and not to the
model: parameters, buffers and state dict do not change, and the layers are restored
afterwards, also on error. A layer that is used in several places has one pair.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm import ranks
from advnorm.norms.affine import AffineNorm
from advnorm.norms.borrowed import BorrowedNorm
from advnorm.norms.dual import DualNorm
from advnorm.norms.kernel_tools import affine_parameters
from advnorm.norms.mode import batch_norms, updates_running, uses_batch
from advnorm.norms.moments import measure_moments, to_single, update_running
from advnorm.norms.perturbed_kernel import perturbed_batch_norm
from advnorm.norms.standard import BatchNorm, affine
from advnorm.norms.thread_scope import exclusive

_FORWARDS = (
    _BatchNorm.forward,
    BatchNorm.forward,
    BorrowedNorm.forward,
    AffineNorm.forward,
)


class StatisticsShift(NamedTuple):
    """Relative changes of a layer's statistics, one number per feature."""

    mean: Tensor
    deviation: Tensor


StatisticsShifts = Mapping[_BatchNorm, StatisticsShift]
"""The shift of each layer."""


class _Scope(NamedTuple):
    """The state of a block in which layers are perturbed."""

    groups: int
    at_zero: bool
    batch: bool
    detached: bool = False


def check_perturbable(model: nn.Module) -> None:
    """Refuse a model whose statistics cannot be perturbed as in Eq. 3."""
    if not batch_norms(model):
        raise ValueError(
            "the model has no batch norm, so there are no statistics to perturb: use the "
            "gradient rule plain or sam, or a model with batch norm"
        )
    for path, layer in model.named_modules():
        if isinstance(layer, DualNorm):
            raise NotImplementedError(
                f"layer {path!r} is a DualNorm, whose gate has no perturbed form: use the "
                "norm batch, mixture, affine or borrowed"
            )
        plain = type(layer).forward in _FORWARDS or type(layer) is nn.SyncBatchNorm
        if isinstance(layer, _BatchNorm) and not plain:
            raise NotImplementedError(
                f"layer {path!r} is a {type(layer).__name__}, which does more than batch "
                "norm: split it into a batch norm and the rest"
            )


@contextmanager
def statistics_gradient(
    model: nn.Module, *, batch: bool = False
) -> Iterator[dict[_BatchNorm, StatisticsShift]]:
    r"""Let backward passes also compute the statistics gradient (Algorithm 1, line 3).

    Yields :math:`\delta_\mu = \delta_\sigma = 0` of each layer, which collect ``.grad``.
    Outputs, other gradients and running statistics are those of the unchanged model. With
    ``batch`` the batch's statistics are used in every mode.
    """
    check_perturbable(model)
    shifts = {layer: _zeros(layer, model) for layer in batch_norms(model)}
    with _patched(model, shifts, _Scope(groups=1, at_zero=True, batch=batch)):
        yield shifts


@contextmanager
def perturbed(
    model: nn.Module,
    shifts: StatisticsShifts,
    *,
    groups: int = 1,
    batch: bool = False,
    detached: bool = False,
) -> Iterator[None]:
    r"""Normalize by perturbed statistics; passes here do not update the running ones.

    With ``groups``, the rows ``j, j + groups, j + 2 * groups, ...`` of a batch are
    normalized by their own moments, for each ``j``: groups do not see each other in the
    batch norms (Algorithm 1, lines 7 to 11, in one pass). The mode decides which statistics
    are perturbed; with ``batch`` always those of the batch. ``detached`` takes the moments
    of the shift :math:`\delta_\mu \hat\mu / \hat\sigma` as constants in the backward pass,
    as the authors' code does (github.com/unknown9567/apart); Eq. 3 differentiates them.
    """
    check_perturbable(model)
    if groups < 1:
        raise ValueError(f"groups must be at least 1, not {groups}")
    with _patched(
        model, shifts, _Scope(groups, at_zero=False, batch=batch, detached=detached)
    ):
        yield


@contextmanager
def unperturbed(model: nn.Module) -> Iterator[None]:
    """Run the unchanged layers for a block inside :func:`statistics_gradient`."""
    with exclusive(model):
        layers = batch_norms(model)
        before = [vars(layer).pop("forward", None) for layer in layers]
        try:
            yield
        finally:
            for layer, forward in zip(layers, before, strict=True):
                if forward is not None:
                    vars(layer)["forward"] = forward


@contextmanager
def _patched(model: nn.Module, shifts: StatisticsShifts, scope: _Scope) -> Iterator[None]:
    with exclusive(model):
        before = [(layer, vars(layer).get("forward")) for layer in shifts]
        try:
            for layer, shift in shifts.items():
                vars(layer)["forward"] = partial(_forward, layer, shift, scope)
            yield
        finally:
            for layer, forward in before:
                del vars(layer)["forward"]
                if forward is not None:
                    vars(layer)["forward"] = forward


def _zeros(layer: _BatchNorm, model: nn.Module) -> StatisticsShift:
    like = next(
        t
        for t in (layer.running_mean, layer.weight, *model.parameters(), torch.zeros(()))
        if t is not None
    )
    zeros = [
        to_single(torch.zeros(layer.num_features, dtype=like.dtype, device=like.device))
        for _ in range(2)
    ]
    return StatisticsShift(*(z.requires_grad_() for z in zeros))


def _forward(
    layer: _BatchNorm, shift: StatisticsShift, scope: _Scope, input: Tensor
) -> Tensor:
    """Replace ``layer.forward``."""
    normalized = _normalize(layer, shift, scope, input)
    return layer.scale(normalized) if isinstance(layer, AffineNorm) else normalized


def _normalize(
    layer: _BatchNorm, shift: StatisticsShift, scope: _Scope, input: Tensor
) -> Tensor:
    """Normalize by perturbed statistics; the layer's own parameters are applied too."""
    layer._check_input_dim(input)  # type: ignore[no-untyped-call]
    if not (uses_batch(layer) or scope.batch):
        return _by_running(layer, shift, input)
    if len(input) % scope.groups:
        raise ValueError(
            f"{len(input)} samples do not divide into {scope.groups} equal groups: change "
            "the number of groups or of samples"
        )
    n, lender_rows = scope.groups, _lender_rows(layer, input)
    like = shift.mean.detach()
    weight, bias = (v.repeat(n) for v in affine_parameters(layer.weight, layer.bias, like))
    deltas = (shift.mean.repeat(n), shift.deviation.repeat(n))
    x = _grouped(input, n)
    if lender_rows is not input or _synced(layer) or x.numel() <= x.shape[1]:
        moments = measure_moments(_grouped(lender_rows, n), sync=_synced(layer))
        scaled = (1 + deltas[1]) * weight
        if scope.detached:
            ratio = (moments.mean * torch.rsqrt(moments.var + layer.eps)).detach()
            y = affine(x, moments, layer.eps, scaled, bias - scaled * deltas[0] * ratio)
        else:
            shifted = moments._replace(mean=(1 + deltas[0]) * moments.mean)
            y = affine(x, shifted, layer.eps, scaled, bias)
    else:
        y, moments = perturbed_batch_norm(
            x,
            (weight, bias),
            deltas,
            layer.eps,
            at_zero=scope.at_zero,
            detached=scope.detached,
        )
    if scope.at_zero and updates_running(layer):
        update_running(layer, moments)
    return y.reshape(input.shape)


def _by_running(layer: _BatchNorm, shift: StatisticsShift, x: Tensor) -> Tensor:
    """Normalize by perturbed running statistics."""
    mean, var = layer.running_mean, layer.running_var
    assert mean is not None and var is not None
    weight, bias = affine_parameters(layer.weight, layer.bias, shift.mean.detach())
    weight = weight * (1 + shift.deviation)
    ratio = to_single(mean) * torch.rsqrt(to_single(var) + layer.eps)
    bias = bias - weight * shift.mean * ratio
    return F.batch_norm(
        x, to_single(mean), to_single(var), weight, bias, training=False, eps=layer.eps
    )


def _grouped(x: Tensor, groups: int) -> Tensor:
    """Return ``(batch, C, ...)`` as ``(batch / groups, groups * C, ...)``: a view."""
    return x if groups == 1 else x.reshape(len(x) // groups, -1, *x.shape[2:])


def _lender_rows(layer: _BatchNorm, x: Tensor) -> Tensor:
    """Return the rows whose moments normalize ``x``: all, or the lender's."""
    if not isinstance(layer, BorrowedNorm):
        return x
    rows = layer.route.clean_rows(len(x))
    if rows in (0, len(x)):
        return x
    parts = layer.route.split(x)
    return parts[0] if layer.lender == "clean" else parts[1]


def _synced(layer: _BatchNorm) -> bool:
    wanted = isinstance(layer, nn.SyncBatchNorm) or getattr(layer, "sync", False)
    return bool(wanted) and ranks.size() > 1
