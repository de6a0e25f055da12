r"""The gradient rules: plain, SAM, APART, APART-SAM.

A rule adds the gradient of one step to ``.grad``; gradients that are there already (of an
earlier part of an accumulated batch) stay. Weights and running statistics are as after one
plain pass: the second pass leaves nothing behind.

The adversarial images of an objective are found once, in the first pass, against the model
as it is; the second pass takes the same images, as Algorithm 1 takes the same samples.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from advnorm import norms
from advnorm.gradients.batch_objective import BatchObjective
from advnorm.objectives import AdversaryCache, Loss
from advnorm.registry import Registry, options

GradientRule = Callable[..., Loss]  # (problem, *, ...)
GRADIENTS: Registry[GradientRule] = Registry("gradient rule")


@GRADIENTS.register("plain")
def plain(problem: BatchObjective) -> Loss:
    """Take the gradient of the objective, by one backward pass."""
    with problem.accumulated():
        loss = problem.backward()
        problem.all_reduce(problem.gradients())
    return loss


@GRADIENTS.register("sam")
def sam(problem: BatchObjective, *, rho: float = 0.05) -> Loss:
    r"""Take the gradient at the worst weights nearby (SAM, Foret et al., 2021), p = 2.

    .. math::
        g = \nabla L(\phi + \hat\delta), \qquad
        \hat\delta = \rho \, \nabla L(\phi) / \|\nabla L(\phi)\|_2
        \qquad \text{(apart2022 Eq. 7)}

    The norm is that of all parameters together. Returns the loss of the first pass.
    """
    check_options(rho=rho)
    memory = AdversaryCache(problem.adversary)
    rows = torch.arange(len(problem.clean), device=problem.clean.device)
    with problem.accumulated():
        loss = replace(problem, adversary=memory.recording()).backward()
        problem.all_reduce(problem.gradients())
        with problem.climbed(rho), norms.keep_statistics(problem.model):
            problem.forget()
            replace(problem, adversary=memory.recalling(rows)).backward()
        problem.all_reduce(problem.gradients())
    return loss


@GRADIENTS.register("apart")
def apart(
    problem: BatchObjective,
    *,
    eps: float = 0.1,
    samples: int | None = None,
    groups: int = 1,
) -> Loss:
    r"""Defend against adversarially perturbed batch statistics (apart2022, Algorithm 1).

    .. math::
        g = \frac{M}{M+N} g_\phi + \frac{N}{M+N} h_\phi

    :math:`g_\phi` is the gradient over the batch of :math:`M` samples; :math:`h_\phi` that
    over :math:`N` of them (``samples``, by default all) with the statistics of every batch
    norm shifted by :math:`\epsilon \operatorname{sign}(g_\theta)` (Eq. 3), each of n
    ``groups`` normalized by itself. One backward pass yields :math:`g_\phi` and
    :math:`g_\theta`. The N samples are the first ones, and groups are blocks of them: the
    random order of the batch makes both random. Returns the loss of the first pass.
    """
    return _apart(problem, eps=eps, rho=0.0, samples=samples, groups=groups)


@GRADIENTS.register("apart_sam")
def apart_sam(
    problem: BatchObjective,
    *,
    eps: float = 0.1,
    rho: float = 0.05,
    samples: int | None = None,
    groups: int = 1,
) -> Loss:
    r"""Take APART's gradient, its second pass at SAM's weights (apart2022, section 3.3).

    As :func:`apart`, with :math:`h_\phi` taken at :math:`\phi + \hat\delta(\phi)` (Eq. 7).
    """
    return _apart(problem, eps=eps, rho=rho, samples=samples, groups=groups)


def check_options(
    *,
    eps: float = 0.0,
    rho: float = 0.0,
    samples: int | None = None,
    groups: int = 1,
    batch: int | None = None,
) -> None:
    """Refuse settings of a rule that make no sense, for batches of ``batch`` samples."""
    for name, radius in (("eps", eps), ("rho", rho)):
        if not 0 <= radius < float("inf"):
            raise ValueError(f"gradient.{name} is a radius from 0, not {radius:g}")
    if samples is not None and (samples < 1 or samples > (batch or samples)):
        raise ValueError(
            f"the second pass cannot take {samples} samples of a batch of "
            f"{batch or 'any size'}: set gradient.samples from 1 to the batch's size, or "
            "leave it out for all"
        )
    second = samples or batch
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
    """Tell whether a rule perturbs the statistics of batch norms, and so needs them."""
    return "eps" in options(GRADIENTS[rule])


def interleaved_rows(count: int, groups: int) -> Tensor:
    """Return the first ``count`` rows, dealt out of their blocks: one a group in turn.

    >>> interleaved_rows(6, 2)  # blocks 0 1 2 and 3 4 5
    tensor([0, 3, 1, 4, 2, 5])
    """
    return torch.arange(count).view(groups, -1).t().reshape(-1)


def _apart(
    problem: BatchObjective, *, eps: float, rho: float, samples: int | None, groups: int
) -> Loss:
    model, m, n = problem.model, problem.size, samples or problem.size
    check_options(eps=eps, rho=rho, samples=samples, groups=groups, batch=m)
    local = round(n * problem.share)
    if local * m != n * len(problem.clean) or local % groups:
        raise ValueError(
            f"{n} samples in {groups} groups cannot be dealt out to the ranks equally: "
            "change gradient.samples or gradient.groups"
        )
    memory = AdversaryCache(problem.adversary, during=partial(norms.unperturbed, model))
    with problem.accumulated(), ExitStack() as scopes:
        with norms.statistics_gradient(model) as zeros:
            loss = replace(problem, adversary=memory.recording()).backward()
        shifts = _ascent(problem, zeros, eps)
        if rho:
            problem.all_reduce(problem.gradients())
            scopes.enter_context(problem.climbed(rho))
        # What was added up once will be once more: each rank keeps its share of it.
        first = m / (m + n) * (problem.share if rho else 1.0)
        torch._foreach_mul_(problem.gradients(), first)
        scopes.enter_context(norms.keep_statistics(model))
        scopes.enter_context(norms.perturbed(model, shifts, groups=groups))
        rows = interleaved_rows(local, groups).to(problem.clean.device)
        problem.of(rows, memory.recalling(rows), whole=n).backward(n / (m + n))
        problem.all_reduce(problem.gradients())
    return loss


def _ascent(
    problem: BatchObjective, zeros: norms.StatisticsShifts, eps: float
) -> norms.StatisticsShifts:
    r"""Return :math:`\epsilon \operatorname{sign}(g_\theta)` (Algorithm 1, line 5)."""
    found = [
        torch.zeros_like(delta) if delta.grad is None else delta.grad
        for shift in zeros.values()
        for delta in shift
    ]
    if all(delta.grad is None for shift in zeros.values() for delta in shift):
        raise ValueError(
            "the objective does not pass through the model's batch norms, so their "
            "statistics have no gradient: use the gradient rule plain or sam"
        )
    problem.all_reduce(found)
    steps = iter([gradient.sign() * eps for gradient in found])
    return {layer: norms.StatisticsShift(next(steps), next(steps)) for layer in zeros}
