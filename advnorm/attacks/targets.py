r"""What an attack maximizes: away from the label, or towards a chosen target.

A goal looks at the batch once, before the first step, and returns the function of the
logits that the attack climbs. Targets and labels therefore never reach the search itself.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.draws import Draws

LogitsFn = Callable[[Tensor], Tensor]
"""Images -> logits."""
Gain = Callable[[Tensor], Tensor]
"""Logits -> one number a sample, to be maximized."""
AttackGoal = Callable[[LogitsFn, Tensor, Tensor, Draws], Gain]
"""``goal(logits_fn, clean, labels, draws) -> Gain``."""


def untargeted(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Gain:
    r"""Climb the cross-entropy of the label, :math:`-\log p_y`; soft labels are fine."""
    return lambda logits: F.cross_entropy(logits, labels, reduction="none")


def random_target(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Gain:
    """Descend the cross-entropy of a class drawn uniformly among the wrong ones.

    xie2020, section 3, draws the target over all classes; drawing the label itself would
    help the defender, so it is left out, as the paper's code does.

    This costs one forward pass, for the number of classes: of the whole batch, because one
    sample has no batch statistics.
    """
    with torch.no_grad():
        classes = logits_fn(clean).shape[1]
    wrong = draws.stream("target").integers(classes - 1)
    hard = hard_labels(labels)
    return _towards(wrong + (wrong >= hard).long())


def least_likely(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Gain:
    """Descend the cross-entropy of the class that the clean image resembles least.

    This costs one forward pass, on the clean images.
    """
    with torch.no_grad():
        logits = logits_fn(clean)
    others = logits.scatter(1, hard_labels(labels)[:, None], torch.inf)
    return _towards(others.argmin(1))


def divergence(reference: Tensor) -> AttackGoal:
    r"""Climb :math:`D_{KL}(p \| f(x'))` from the softmax :math:`p` of reference logits.

    The inner maximization of TRADES (Zhang et al., 2019), with the clean logits as the
    reference. Its gradient is zero at the clean input: start elsewhere.
    """
    target = log_probabilities(reference.detach())

    def goal(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Gain:
        return lambda logits: F.kl_div(
            log_probabilities(logits), target, log_target=True, reduction="none"
        ).sum(1)

    return goal


def log_probabilities(logits: Tensor) -> Tensor:
    """Return the log-softmax, of half precision in single.

    A divergence is a difference of nearly equal numbers, and on a CPU autocast leaves them
    in half precision, where little of it remains.
    """
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return logits.log_softmax(1, dtype=torch.float32 if half else logits.dtype)


def hard_labels(labels: Tensor) -> Tensor:
    """Return class indices, also of soft labels."""
    return labels.argmax(1) if labels.is_floating_point() else labels


def _towards(targets: Tensor) -> Gain:
    return lambda logits: -F.cross_entropy(logits, targets, reduction="none")


GOALS: dict[str, AttackGoal] = {
    "none": untargeted,
    "random": random_target,
    "least_likely": least_likely,
}
"""The goals by name: no target, a random class, the least likely one."""
