"""Projected gradient ascent (Madry et al., 2018, https://arxiv.org/abs/1706.06083).

The fast gradient sign method (Goodfellow et al., 2015) is one step of it from the clean
image, the basic iterative method (Kurakin et al., 2017) several steps from there.
"""

import torch
from torch import Tensor

from advnorm.attacks.targets import AttackGoal, Gain, LogitsFn, untargeted
from advnorm.draws import Draws, draws_of_call
from advnorm.threat import Threat


class NonFiniteGradientError(FloatingPointError):
    """The gradient that an attack follows is not a number."""


def pgd(  # noqa: PLR0913 (what every attack takes, and a start)
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    step_size: float,
    goal: AttackGoal = untargeted,
    clean_start: float = 0.0,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Maximize the loss inside the threat model, from a random admissible point.

    .. math::
        x_{t+1} = \Pi_{S(x)}\bigl(x_t + \alpha \, d(\nabla_{x_t} \ell(f(x_t), y))\bigr)

    The last iterate is returned, whether or not it fools the model: this is the example
    that adversarial training needs. Evaluation keeps the worst over restarts itself.

    Args:
        logits_fn: Maps inputs in the threat's bounds to logits. The mode of its norms is
            the caller's choice (see :func:`advnorm.norms.mode`).
        clean: Clean inputs in the threat's bounds, shape ``(batch, ...)``.
        labels: Class indices ``(batch,)``, or soft labels ``(batch, classes)``.
        threat: The set to search.
        steps: Number of ascent steps.
        step_size: Length :math:`\alpha` of a step, in units of the threat's norm.
        goal: What to maximize.
        clean_start: Probability to start at the clean input (xie2020 section 3: 0.2).
        draws: The samples' random numbers; by default fresh ones at every call.
        generator: Where fresh ones come from; by default torch's global generator, which
            advances as in ``torch.rand``.

    Returns:
        Admissible inputs, detached, same shape as ``clean``.

    Raises:
        NonFiniteGradientError: If a gradient held NaN or infinity.
    """
    draws = draws_of_call(draws, generator, clean)
    gain = goal(logits_fn, clean, labels, draws)
    x = starting_point(clean, threat, clean_start=clean_start, draws=draws)
    return ascend(logits_fn, x, clean, threat, gain, steps=steps, step_size=step_size)


def fgsm(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    goal: AttackGoal = untargeted,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Take one step of length eps from the clean input (fast gradient sign method)."""
    return bim(
        logits_fn,
        clean,
        labels,
        threat,
        steps=1,
        step_size=threat.eps,
        goal=goal,
        draws=draws,
        generator=generator,
    )


def bim(
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    step_size: float,
    goal: AttackGoal = untargeted,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run PGD from the clean input: the basic iterative method."""
    return pgd(
        logits_fn,
        clean,
        labels,
        threat,
        steps=steps,
        step_size=step_size,
        goal=goal,
        clean_start=1.0,
        draws=draws,
        generator=generator,
    )


def starting_point(
    clean: Tensor, threat: Threat, *, clean_start: float, draws: Draws
) -> Tensor:
    """Return where to start: in the ball, or with this probability at the clean image."""
    if clean_start >= 1:
        return clean.clone()
    x = threat.sample(clean, draws.stream("start"))
    if clean_start > 0:
        ones = (1,) * (clean.ndim - 1)
        stay = draws.stream("clean start").uniform(*ones) < clean_start
        x = torch.where(stay, clean, x)
    return x


def ascend(
    logits_fn: LogitsFn,
    x: Tensor,
    clean: Tensor,
    threat: Threat,
    gain: Gain,
    *,
    steps: int,
    step_size: float,
) -> Tensor:
    """Take steps from ``x``. It has no memory: two calls in turn are one with all steps.

    Raises:
        NonFiniteGradientError: If a gradient held NaN or infinity.
    """
    finite = torch.ones((), dtype=torch.bool, device=clean.device)
    for _ in range(steps):
        x.requires_grad_()
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(gain(logits_fn(x)).sum(), x)
        finite &= grad.sum().isfinite()  # read once, after the loop: no wait inside it
        x = threat.project(x.detach() + step_size * threat.direction(grad), clean)
    if not finite:
        raise NonFiniteGradientError(
            "the attack met a gradient that is not finite: the model's logits overflow, or "
            "its weights or statistics are not numbers"
        )
    return x.detach()
