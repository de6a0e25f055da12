"""How the model treats its input: the range that it expects, and whether it quantizes."""

import torch
from torch import Tensor

from advnorm.evaluation.checks.context import CHECKS, AuditContext, Finding
from advnorm.evaluation.checks.significance import clearly_lower, count

TINY = 1e-5
"""A change of the input, relative to its range, that no 8-bit image has."""


@CHECKS.register("standardization_outside")
def standardization_outside(context: AuditContext) -> Finding:
    """Ask whether the images are standardized, or the model expects standardized ones.

    Images outside of the bounds are refused before. Those inside are given to the model as
    they are, standardized by their own moments, and scaled to [-1, 1]: a model that does
    better on one of these was not made for the bounds. Images that have mean 0 and
    deviation 1 themselves are standardized, whatever the bounds say, and eps then counts
    in standard deviations.
    """
    as_given, n = context.correct, len(context.images)
    others = [context.is_correct(context.logits(images)) for images in _scaled(context)]
    best = max(others, key=count)
    gain = (count(best) - count(as_given)) / n
    mean, deviation = (f(context.images).item() for f in (torch.mean, torch.std))
    looks = context.threat.bounds[0] < 0 and abs(mean) < 0.25 and 0.8 < deviation < 1.25
    return Finding(
        looks or (gain > 0.1 and clearly_lower(as_given, best)),
        "images are standardized outside of the model, or should be: make standardization "
        "its first layer (advnorm.models.Standardize), so that eps counts in pixels",
        {
            "as given": count(as_given) / n,
            "standardized": count(best) / n,
            "mean": mean,
            "deviation": deviation,
        },
    )


@CHECKS.register("piecewise_constant")
def piecewise_constant(context: AuditContext) -> Finding:
    """Ask whether the output ignores tiny changes of the input, as if it were quantized.

    The gradient of such a model is 0 or made up, whatever autograd says.
    """
    low, high = context.threat.bounds
    x = context.nearby
    noise = context.draws.stream("tiny").uniform(*x.shape[1:], dtype=x.dtype)
    moved = (x + TINY * (high - low) * (2 * noise - 1)).clamp_(low, high)
    before, after = context.logits(x), context.logits(moved)
    share = (before == after).all(1).double().mean().item()
    return Finding(
        share > 0.5,
        "the output is constant in small steps (quantized input or hard output): attack "
        "with the identity as the backward pass (BPDA), or without gradients (square)",
        {"share of samples": share},
    )


def _scaled(context: AuditContext) -> list[Tensor]:
    """Return the images standardized by channel, as a whole, and scaled to [-1, 1]."""
    images, (low, high) = context.images, context.threat.bounds
    channels = [0, *range(2, images.ndim)]
    tiny = torch.finfo(images.dtype).eps
    return [
        (images - images.mean(channels, keepdim=True))
        / images.std(channels, keepdim=True, correction=0).clamp(min=tiny),
        (images - images.mean()) / images.std(correction=0).clamp(min=tiny),
        (images - (low + high) / 2) / ((high - low) / 2),
    ]
