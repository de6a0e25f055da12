"""Whether gradients are those of the logits, and hold beyond a tiny neighbourhood."""

import torch
from torch import Tensor

from advnorm.evaluation.checks.context import CHECKS, AuditContext, Finding, NotRun
from advnorm.evaluation.checks.significance import count, exceeds
from advnorm.evaluation.checks.slopes import SCALES, Slopes

OFF = 0.5
"""The relative error of a slope that makes it a wrong one."""
MANY, MANY_IN_SINGLE = 0.1, 0.3
"""The share of samples with wrong slopes that is too many. In single precision steps are
larger, and a kink of the model may lie within one."""
FACTOR = 5.0
"""By which the typical slope may change with the distance."""
_ENOUGH = 8
"""The number of samples that give a typical slope."""


@CHECKS.register("wrong_gradients")
def wrong_gradients(context: AuditContext) -> Finding:
    """Ask whether gradients agree with finite differences of the logits.

    They are compared along the gradient and along a random direction. This detects a custom
    backward pass (BPDA, straight-through), a detached part, or a decoy.
    """
    slopes = _slopes(context)
    own = _off(slopes.own, slopes.own_by_gradient, slopes.floor)
    random = _off(slopes.random, slopes.random_by_gradient, slopes.floor)
    limit, n = MANY if slopes.double else MANY_IN_SINGLE, len(own)
    return Finding(
        exceeds(count(own), n, limit) or exceeds(count(random), n, limit),
        "the gradient is not that of the model's answers: something in the backward pass "
        "is cut, replaced or lost; trust attacks without gradients only (hop_skip_jump)",
        {
            "wrong along itself": count(own) / n,
            "wrong along noise": count(random) / n,
            "double precision": float(slopes.double),
        },
    )


@CHECKS.register("rugged_scores")
def rugged_scores(context: AuditContext) -> Finding:
    """Ask whether slopes over a tiny distance differ from those over a larger one.

    Rounding (even with a gradient that bypasses it), ripples, and noise that is a function
    of the image have gradients that say nothing about other images nearby.
    """
    slopes = _slopes(context)
    if len(slopes.random) < _ENOUGH or not context.threat.eps:
        raise NotRun(f"fewer than {_ENOUGH} samples, or a radius of 0")
    here, floor = _length(slopes.random), slopes.floor
    ratios = [_ratio(_length(far), here, floor) for far in slopes.larger]
    return Finding(
        any(not 1 / FACTOR <= ratio <= FACTOR for ratio in ratios),
        "the slope right at an image is not the slope around it (rounded inputs, ripples, "
        "hashed scores), so gradients mislead: trust attacks on decisions (hop_skip_jump)",
        {
            f"slope at {scale:g} eps": ratio
            for scale, ratio in zip(SCALES, ratios, strict=True)
        },
    )


def _slopes(context: AuditContext) -> Slopes:
    context.require_better_than_chance()
    if context.slopes is None:
        raise NotRun("the model has no gradients at all")
    return context.slopes


def _length(slopes: Tensor) -> Tensor:
    """Return the root mean square over directions, one number per sample."""
    return slopes.square().mean(1).sqrt()


def _ratio(far: Tensor, here: Tensor, floor: Tensor) -> float:
    """Return the median ratio of slopes; where all of them are rounding, 1."""
    seen = torch.maximum(far, here) > floor
    if not bool(seen.any()):
        return 1.0
    return (far.clamp(min=floor) / here.clamp(min=floor))[seen].median().item()


def _off(measured: Tensor, predicted: Tensor, floor: Tensor) -> Tensor:
    """Tell which samples have slopes that are wrong by more than :data:`OFF`."""
    size = torch.maximum(_length(measured), _length(predicted))
    return _length(measured - predicted) > OFF * size + floor
