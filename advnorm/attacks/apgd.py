"""The attacks that use Auto-PGD (Croce & Hein, 2020, arXiv:2003.01690).

They differ in what they maximize: any goal, the cross-entropy, the difference of logits
ratio, or that ratio towards each of the likeliest wrong classes in turn.
"""

import torch
from torch import Tensor

from advnorm.attacks.auto_pgd import AutoPGDResult, auto_pgd
from advnorm.attacks.auto_pgd_l1 import auto_pgd_l1
from advnorm.attacks.losses import dlr, targeted_dlr
from advnorm.attacks.parallel_runs import runs_together
from advnorm.attacks.target_order import TargetOrder, likeliest
from advnorm.attacks.targets import AttackGoal, Gain, LogitsFn, hard_labels, untargeted
from advnorm.draws import Draws, draws_of_call
from advnorm.threat import Threat


def apgd(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 100,
    rho: float = 0.75,
    goal: AttackGoal = untargeted,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Auto-PGD: maximize with an adaptive step size, from a random admissible point.

    Args:
        logits_fn: Maps inputs in the threat's bounds to logits.
        clean: Clean inputs in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``, whose
            largest entry is then the right class.
        threat: The set to search.
        steps: Number of ascent steps.
        rho: Share :math:`\rho` of the steps since the last checkpoint that must have raised
            the gain, else the step size is halved.
        goal: What to maximize.
        draws: The samples' random numbers; by default fresh ones at every call.
        generator: Where fresh ones come from; by default torch's global generator, which
            advances as in ``torch.rand``.

    Returns:
        Admissible inputs, detached: the first iterate that fools the model where one does,
        else the iterate of the largest gain.

    Raises:
        NonFiniteGradientError: If a gradient, or the largest logit, was NaN or infinite.
    """
    draws = draws_of_call(draws, generator, clean)
    gain = goal(logits_fn, clean, labels, draws)
    start = threat.sample(clean, draws.stream("start"))
    hard = hard_labels(labels)
    return _search(logits_fn, clean, hard, threat, gain, start, steps=steps, rho=rho).images


def apgd_ce(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 100,
    rho: float = 0.75,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Maximize the cross-entropy of the label with Auto-PGD."""
    return apgd(
        logits_fn,
        clean,
        labels,
        threat,
        steps=steps,
        rho=rho,
        draws=draws,
        generator=generator,
    )


def apgd_dlr(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 100,
    rho: float = 0.75,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Maximize the difference of logits ratio with Auto-PGD.

    With 2 classes it is the plain margin: :func:`advnorm.attacks.losses.dlr_reason`.
    """
    return apgd(
        logits_fn,
        clean,
        labels,
        threat,
        steps=steps,
        rho=rho,
        goal=_ratio,
        draws=draws,
        generator=generator,
    )


def apgd_t(  # noqa: PLR0913 (what every attack takes, and its targets)
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int = 100,
    rho: float = 0.75,
    targets: int = 9,
    order: TargetOrder = likeliest,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Maximize the targeted ratio with Auto-PGD, for each of the likeliest wrong classes.

    Each target is a run of its own from another random point, over the samples that no
    run has broken yet; runs towards several targets share a batch. The targets are ranked
    by the clean logits, which costs one forward pass (:mod:`advnorm.attacks.target_order`
    has another order); a sample that this pass finds misclassified is returned as it is.

    With 2 or 3 classes the plain margin is maximized instead:
    :func:`advnorm.attacks.losses.targeted_dlr_reason`.

    Args:
        logits_fn: Maps inputs in the threat's bounds to logits.
        clean: Clean inputs in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: The set to search.
        steps: Number of ascent steps of each run.
        rho: As in :func:`apgd`.
        targets: Number of target classes; all wrong ones where there are fewer.
        order: Which wrong classes come first.
        draws: As in :func:`apgd`.
        generator: As in :func:`apgd`.

    Returns:
        Admissible inputs, detached: an adversarial one where a run met one, else the one
        of the largest gain over all runs.

    Raises:
        NonFiniteGradientError: If a gradient, or the largest logit, was NaN or infinite.
    """
    if targets < 1:
        raise ValueError(f"targets is a number of classes from 1, not {targets}")
    if not len(clean):
        return clean.clone()
    draws = draws_of_call(draws, generator, clean)
    hard = hard_labels(labels)
    logits, ranked = order(logits_fn, clean, hard, threat)
    right = (logits.argmax(1) == hard) | ~logits.amax(1).isfinite()
    left = right.nonzero().squeeze(1)
    images = clean.clone()
    gains = torch.full((len(clean),), -torch.inf, dtype=clean.dtype, device=clean.device)
    waiting = range(min(targets, ranked.shape[1]))
    while len(waiting) and len(left):
        chosen = runs_together(waiting, len(left))
        x, y, classes = clean[left], hard[left], ranked[left][:, chosen].T
        starts = [threat.sample(x, draws[left].stream("target start", r)) for r in chosen]
        result = _search(
            logits_fn,
            torch.cat([x] * len(chosen)),
            y.repeat(len(chosen)),
            threat,
            targeted_dlr(y.repeat(len(chosen)), classes.flatten()),
            torch.cat(starts),
            steps=steps,
            rho=rho,
            owner=left.repeat(len(chosen)),
        )
        left, waiting = _keep_best(result, left, images, gains), waiting[len(chosen) :]
    return images


def _search(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    gain: Gain,
    start: Tensor,
    *,
    steps: int,
    rho: float,
    owner: Tensor | None = None,
) -> AutoPGDResult:
    """Run Auto-PGD, in L1 the algorithm for sparse steps, which has no ``rho``."""
    batch = (logits_fn, clean, labels, threat, gain, start)
    if threat.name == "l1":
        return auto_pgd_l1(*batch, steps=steps, owner=owner)
    return auto_pgd(*batch, steps=steps, rho=rho, owner=owner)


def _keep_best(
    result: AutoPGDResult, left: Tensor, images: Tensor, gains: Tensor
) -> Tensor:
    """Keep the best run of each image; return the images that are not broken yet."""
    broken = result.broken.view(-1, len(left))
    value = result.gains.view_as(broken).masked_fill(broken, torch.inf)
    pick = value.argmax(0)  # the first that broke it, else the largest gain
    chosen = pick * len(left) + torch.arange(len(left), device=left.device)
    any_broken = broken.any(0)
    better = any_broken | (result.gains[chosen] > gains[left])
    images[left[better]] = result.images[chosen[better]]
    gains[left[better]] = result.gains[chosen[better]].to(gains.dtype)
    return left[~any_broken]


def _ratio(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Gain:
    return dlr(hard_labels(labels))
