r"""The gradient rules: plain, SAM, APART, APART-SAM.

A rule adds the gradient of one step to ``.grad``; gradients from before (of an earlier part
of an accumulated batch) are kept. SAM and APART run a second forward and backward pass,
which changes neither weights nor running statistics: both are as after one plain pass.

The adversarial images of an objective are computed once, in the first pass, against the
unperturbed model. The second pass uses the same images, as Algorithm 1 uses the same
samples.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm import norms
from advnorm.gradients.batch_objective import BatchObjective
from advnorm.objectives import AdversaryCache, Loss
from advnorm.registry import Registry, options

GradientRule = Callable[..., Loss]
"""``rule(batch: BatchObjective, *, options) -> Loss``; it adds to ``.grad``."""
GRADIENTS: Registry[GradientRule] = Registry("gradient rule")
"""The rules by name."""


@GRADIENTS.register("plain")
def plain(batch: BatchObjective) -> Loss:
    """Compute the gradient of the objective by one backward pass."""
    with batch.accumulated():
        loss = batch.backward()
        batch.all_reduce(batch.gradients())
    return loss


@GRADIENTS.register("sam")
def sam(batch: BatchObjective, *, rho: float = 0.05) -> Loss:
    r"""SAM: the gradient at the worst weights nearby, in L2 (Foret et al., 2021).

    .. math::
        g = \nabla L(\phi + \hat\delta), \qquad
        \hat\delta = \rho \, \nabla L(\phi) / \|\nabla L(\phi)\|_2
        \qquad \text{(apart2022 Eq. 7)}

    The norm is that of all parameters together. Returns the loss of the first pass.
    """
    check_options(rho=rho)
    cache = AdversaryCache(batch.adversary)
    rows = torch.arange(len(batch.clean), device=batch.clean.device)
    with batch.accumulated():
        loss = replace(batch, adversary=cache.record()).backward()
        batch.all_reduce(batch.gradients())
        with batch.perturbed_weights(rho), norms.keep_statistics(batch.model):
            batch.zero_grad()
            replace(batch, adversary=cache.replay(rows)).backward()
        batch.all_reduce(batch.gradients())
    return loss


@GRADIENTS.register("apart")
def apart(
    batch: BatchObjective,
    *,
    eps: float = 0.1,
    samples: int | None = None,
    groups: int = 1,
    detached: bool = False,
) -> Loss:
    r"""APART: train also on perturbed batch statistics (apart2022, Algorithm 1).

    .. math::
        g = \frac{M}{M+N} g_\phi + \frac{N}{M+N} h_\phi

    :math:`g_\phi` is the gradient over the batch of :math:`M` samples; :math:`h_\phi` that
    over :math:`N` of them (``samples``, by default all) with the statistics of every batch
    norm perturbed by :math:`\epsilon \operatorname{sign}(g_\theta)` (Eq. 3), each of n
    ``groups`` normalized by itself. One backward pass computes :math:`g_\phi` and
    :math:`g_\theta`. The N samples are the first ones, and groups are blocks of them; both
    are random because the order of the batch is. With ``detached`` the second pass does not
    differentiate the moments in the shift, as in the authors' code
    (:func:`advnorm.norms.perturbed`). Returns the loss of the first pass.
    """
    return _apart(batch, _SecondPass(eps, 0.0, samples, groups, detached))


@GRADIENTS.register("apart_sam")
def apart_sam(
    batch: BatchObjective,
    *,
    eps: float = 0.1,
    rho: float = 0.05,
    samples: int | None = None,
    groups: int = 1,
    detached: bool = False,
) -> Loss:
    r"""APART-SAM: APART with its second pass at SAM's weights (apart2022, section 3.3).

    As :func:`apart`, with :math:`h_\phi` taken at :math:`\phi + \hat\delta(\phi)` (Eq. 7).
    """
    return _apart(batch, _SecondPass(eps, rho, samples, groups, detached))


def check_options(
    *,
    eps: float = 0.0,
    rho: float = 0.0,
    samples: int | None = None,
    groups: int = 1,
    batch_size: int | None = None,
) -> None:
    """Refuse options of a rule that do not fit to batches of ``batch_size`` samples."""
    for name, radius in (("eps", eps), ("rho", rho)):
        if not 0 <= radius < float("inf"):
            raise ValueError(
                f"gradient.{name} is a radius and must be at least 0, not {radius:g}"
            )
    if samples is not None and (samples < 1 or samples > (batch_size or samples)):
        raise ValueError(
            f"the second pass cannot use {samples} samples of a batch of "
            f"{batch_size or 'any size'}: set gradient.samples from 1 to the batch size, "
            "or leave it out for all samples"
        )
    second = samples or batch_size
    if groups < 1 or (second is not None and second % groups):
        raise ValueError(
            f"{groups} groups do not divide the {second or ''} samples of the second pass "
            "equally: change gradient.groups or gradient.samples"
        )
    if groups > 1 and second == groups:
        raise ValueError(
            f"{groups} groups of one sample have no batch statistics: lower gradient.groups"
        )


def perturbs_statistics(rule: str) -> bool:
    """Tell whether a rule perturbs batch statistics, and so needs batch norms."""
    return "eps" in options(GRADIENTS[rule])


def interleaved_rows(count: int, groups: int) -> Tensor:
    """Return the first ``count`` rows, one of each group in turn; a group is a block.

    >>> interleaved_rows(6, 2)  # blocks 0 1 2 and 3 4 5
    tensor([0, 3, 1, 4, 2, 5])
    """
    return torch.arange(count).view(groups, -1).t().reshape(-1)


class _SecondPass(NamedTuple):
    """The options of APART and APART-SAM."""

    eps: float
    rho: float
    samples: int | None
    groups: int
    detached: bool


def _apart(batch: BatchObjective, options: _SecondPass) -> Loss:
    eps, rho, samples, groups, detached = options
    model, m, n = batch.model, batch.batch_size, samples or batch.batch_size
    check_options(eps=eps, rho=rho, samples=samples, groups=groups, batch_size=m)
    local = round(n * batch.share)
    if local * m != n * len(batch.clean) or local % groups:
        raise ValueError(
            f"{n} samples in {groups} groups do not divide equally among the ranks: "
            "change gradient.samples or gradient.groups"
        )
    cache = AdversaryCache(batch.adversary, during=partial(norms.unperturbed, model))
    with batch.accumulated(), ExitStack() as scopes:
        with norms.statistics_gradient(model) as zeros:
            loss = replace(batch, adversary=cache.record()).backward()
        shifts = _ascent(batch, zeros, eps)
        if rho:
            batch.all_reduce(batch.gradients())
            scopes.enter_context(batch.perturbed_weights(rho))
        # Reduced gradients will be reduced once more: each rank keeps its share.
        first = m / (m + n) * (batch.share if rho else 1.0)
        torch._foreach_mul_(batch.gradients(), first)
        scopes.enter_context(norms.keep_statistics(model))
        scopes.enter_context(
            norms.perturbed(model, shifts, groups=groups, detached=detached)
        )
        rows = interleaved_rows(local, groups).to(batch.clean.device)
        batch.subset(rows, cache.replay(rows), global_rows=n).backward(n / (m + n))
        batch.all_reduce(batch.gradients())
    return loss


def _ascent(
    batch: BatchObjective, zeros: norms.StatisticsShifts, eps: float
) -> norms.StatisticsShifts:
    r"""Return :math:`\epsilon \operatorname{sign}(g_\theta)` (Algorithm 1, line 5)."""
    gradients = [
        torch.zeros_like(delta) if delta.grad is None else delta.grad
        for shift in zeros.values()
        for delta in shift
    ]
    if all(delta.grad is None for shift in zeros.values() for delta in shift):
        raise ValueError(
            "the objective does not pass through the model's batch norms, so their "
            "statistics have no gradient: use the gradient rule plain or sam"
        )
    batch.all_reduce(gradients)
    steps = iter([gradient.sign() * eps for gradient in gradients])
    return {layer: norms.StatisticsShift(next(steps), next(steps)) for layer in zeros}
