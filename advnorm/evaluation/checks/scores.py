"""Whether a smaller margin means a less certain decision, as score-based attacks assume."""

from math import sqrt

import torch
from torch import Tensor

from advnorm.evaluation.checks.context import CHECKS, FEW, AuditContext, Finding, NotRun

PAIRINGS = 6
WEAK = 0.7
"""Of the agreement: 0.5 is no information, 1 a perfect order."""
_ENOUGH = 10
FLAT = 1e-3
"""The spread of logits below which their softmax is uniform to an attack."""


@CHECKS.register("uninformative_scores")
def uninformative_scores(context: AuditContext) -> Finding:
    """Ask whether a smaller margin foretells a change of the decision.

    Images are mixed with others, four and five tenths of the way. Among those that keep
    their class at four, the margin there should be smaller for those that lose it at five:
    the agreement is the area under the ROC curve. Scores that are a hash of the image, or
    a function of something else, have 0.5. Farther from the change even sound margins say
    little: robust networks are flat there.
    """
    context.require_better_than_chance()
    x = context.images[:FEW]
    own = context.few_logits.argmax(1)
    kept, lost = [], []
    for pairing in range(1, 1 + min(PAIRINGS, len(x) - 1)):
        other = x.roll(pairing, 0)
        before, after = (
            context.logits(torch.lerp(x, other, share)) for share in (0.4, 0.5)
        )
        margin = _margin(before, own)
        rows = (margin > 0) & (own != own.roll(pairing))
        changed = after.argmax(1) != own
        kept.append(margin[rows & ~changed])
        lost.append(margin[rows & changed])
    stay, change = torch.cat([*kept, x.new_empty(0)]), torch.cat([*lost, x.new_empty(0)])
    if min(len(stay), len(change)) < _ENOUGH:
        raise NotRun("too few decisions change between these images")
    agreement = _area(change, stay)
    n, m = len(stay), len(change)
    deviation = sqrt((n + m + 1) / (12 * n * m))  # of an area without information
    return Finding(
        agreement + 2.33 * deviation < WEAK,
        "scores say nothing about how near another decision is: attacks that follow them "
        "(gradients and square alike) are blind; trust decisions only (hop_skip_jump)",
        {"agreement": agreement, "decisions": float(n + m)},
    )


@CHECKS.register("tiny_logits")
def tiny_logits(context: AuditContext) -> Finding:
    """Ask whether logits are so close together that their softmax is uniform.

    The cross-entropy then follows the mean of all logits, and its gradient may underflow.
    """
    context.require_better_than_chance()
    logits = context.clean_logits
    spread = (logits.amax(1) - logits.amin(1)).median().item()
    return Finding(
        spread < FLAT,
        "logits are so close together that their softmax is uniform, which weakens every "
        "attack on the cross-entropy: multiply them by a constant before the attack",
        {"median spread": spread},
    )


def _margin(logits: Tensor, own: Tensor) -> Tensor:
    """Return how far the class ``own`` is above the others."""
    index = own[:, None]
    others = logits.scatter(1, index, -torch.inf).amax(1)
    return logits.gather(1, index).squeeze(1) - others


def _area(smaller: Tensor, larger: Tensor) -> float:
    """Return the probability that one of ``smaller`` is below one of ``larger``."""
    below = (smaller[:, None] < larger).double() + 0.5 * (smaller[:, None] == larger)
    return below.mean().item()
