"""Checks that need a few passes only (those of AutoAttack, Croce & Hein, 2020, and more).

AutoAttack's code warns of randomized and dynamic defenses, of probabilities instead of
logits and of zero gradients. Here each is a check, beside three that split them further.
"""

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from advnorm.evaluation.checks.context import CHECKS, FEW, AuditContext, Finding, NotRun
from advnorm.evaluation.checks.significance import (
    count,
    exceeds,
    rounding_of,
    share_differing,
)
from advnorm.evaluation.checks.snapshot import TensorSnapshot
from advnorm.model_state import frozen_parameters


@CHECKS.register("randomized")
def randomized(context: AuditContext) -> Finding:
    """Ask whether two passes over the same images give different logits."""
    share = context.randomness
    return Finding(
        share > 0,
        "two passes differ: average over the noise (expectation over transformation), or "
        "switch it off; a single gradient of a random model misleads an attack",
        {"share of samples": share},
    )


@CHECKS.register("softmax_output")
def softmax_output(context: AuditContext) -> Finding:
    """Ask whether the outputs lie in [0, 1] and sum to 1: probabilities."""
    logits, unit = context.clean_logits, rounding_of(context.model)
    inside = ((logits >= 0) & (logits <= 1 + unit)).all(1)
    sums = (logits.sum(1) - 1).abs() <= unit
    share = (inside & sums).double().mean().item()
    return Finding(
        share == 1 and not _hard(logits),
        "the model returns probabilities: attack its logits, because a second softmax "
        "flattens the loss",
        {"share of samples": share},
    )


@CHECKS.register("one_hot_output")
def one_hot_output(context: AuditContext) -> Finding:
    """Ask whether each output holds two values only: a decision and no scores."""
    logits = context.clean_logits
    share = _two_valued(logits).double().mean().item()
    return Finding(
        _hard(logits),
        "the output tells the decision alone: attack the logits behind it, because no "
        "gradient and no score leads to the boundary",
        {"share of samples": share},
    )


@CHECKS.register("unavailable_gradients")
def unavailable_gradients(context: AuditContext) -> Finding:
    """Ask whether the input has no finite gradient (Pintor et al., 2022)."""
    gradients = context.gradients
    finite = gradients is not None and bool(gradients.isfinite().all())
    return Finding(
        not finite,
        "no finite gradient reaches the input: remove the detach, argmax or rounding that "
        "cuts the graph, or attack a differentiable approximation (BPDA)",
        {"available": float(gradients is not None), "finite": float(finite)},
    )


@CHECKS.register("zero_gradients")
def zero_gradients(context: AuditContext) -> Finding:
    """Ask whether the input gradient of the cross-entropy is exactly 0."""
    if context.gradients is None:
        raise NotRun("the model has no gradients at all")
    zero = (context.gradients == 0).flatten(1).all(1) & context.correct
    return Finding(
        exceeds(count(zero), count(context.correct), 0.01),
        "cross-entropy has no slope at some images, so PGD stays where it starts: trust "
        "margin losses (apgd_dlr, apgd_t) and square only",
        {"share of samples": count(zero) / max(1, count(context.correct))},
    )


@CHECKS.register("saturated_loss")
def saturated_loss(context: AuditContext) -> Finding:
    """Ask whether logits are so far apart that their softmax is exactly one-hot."""
    logits, correct = context.clean_logits, context.correct
    others = (logits - logits.amax(1, keepdim=True)).exp().sum(1) == 1
    top = logits.topk(2, dim=1).values
    hard = count(others & correct)
    return Finding(
        exceeds(hard, count(correct), 0.01),
        "logits are so far apart that cross-entropy is flat in this precision: divide them "
        "by a constant before the attack, or attack the margin (apgd_dlr)",
        {
            "share of samples": hard / max(1, count(correct)),
            "median margin": (top[:, 0] - top[:, 1]).median().item(),
        },
    )


@CHECKS.register("dynamic")
def dynamic(context: AuditContext) -> Finding:
    """Ask whether a pass changes the model, or optimizes something at test time."""
    snapshot, saved = TensorSnapshot(context.model), list[int]()

    def save(tensor: Tensor) -> Tensor:  # called where a graph is built, against no_grad
        saved.append(1)
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        context.logits(context.images[:FEW])
    moved = snapshot.moved()
    return Finding(
        moved > 0 or bool(saved),
        "a prediction changes the model or optimizes at test time: freeze it (running "
        "statistics, no adaptation), else each query attacks another model",
        {"changed tensors": float(moved), "graphs built": float(len(saved))},
    )


@CHECKS.register("batch_dependent")
def batch_dependent(context: AuditContext) -> Finding:
    """Ask whether an answer depends on the other images of a batch, or on its place."""
    x = context.images[:FEW]
    if len(x) < 4:
        raise NotRun("fewer than 4 samples")
    if context.randomness:
        raise NotRun("the model is randomized, so batches cannot be compared")
    half, whole = len(x) // 2, context.few_logits
    rounding = rounding_of(context.model)
    shares = [
        share_differing(whole[:half], context.logits(x[:half]), rounding),
        share_differing(whole, context.logits(x.flip(0)).flip(0), rounding),
    ]
    share = max(shares)
    return Finding(
        share > 0,
        "a prediction depends on its batch (batch statistics at test time?): use running "
        "statistics, or the attack on a batch is none on an image",
        {"share of samples": share},
    )


@CHECKS.register("grad_mode_dependent")
def grad_mode_dependent(context: AuditContext) -> Finding:
    """Ask whether answers change where gradients are enabled, or required.

    A search runs there; a verdict does not.
    """
    if context.randomness:
        raise NotRun("the model is randomized, so passes cannot be compared")
    x, unit = context.images[:FEW], rounding_of(context.model)
    plain = context.few_logits
    with torch.enable_grad(), frozen_parameters(context.model):
        enabled = context.logits_fn(x.clone()).detach()
        required = context.logits_fn(x.clone().requires_grad_()).detach()
    numbers = {
        "gradients enabled": share_differing(plain, enabled, unit),
        "gradients wanted": share_differing(plain, required, unit),
    }
    return Finding(
        max(numbers.values()) > 0,
        "the model answers otherwise where gradients are enabled or wanted, so a search "
        "attacks another model than the one that predicts: remove that branch",
        numbers,
    )


PROBES = (
    "randomized",
    "softmax_output",
    "one_hot_output",
    "unavailable_gradients",
    "zero_gradients",
    "saturated_loss",
    "dynamic",
    "batch_dependent",
    "grad_mode_dependent",
    "wrong_gradients",
    "rugged_scores",
    "uninformative_scores",
    "tiny_logits",
)
"""What every evaluation asks: a few passes over a few samples."""
MASKED = frozenset(
    {
        "one_hot_output",
        "zero_gradients",
        "saturated_loss",
        "unavailable_gradients",
        "grad_mode_dependent",
        "wrong_gradients",
        "rugged_scores",
        "uninformative_scores",
        "tiny_logits",
    }
)
"""Flags that make gradients or scores suspect: only an attack on decisions counts then."""


def _two_valued(logits: Tensor) -> Tensor:
    low, high = logits.amin(1, keepdim=True), logits.amax(1, keepdim=True)
    return ((logits == low) | (logits == high)).all(1)


def _hard(logits: Tensor) -> bool:
    """Tell a decision from scores; two classes always have two values, but not the same."""
    return bool(_two_valued(logits).all()) and len(torch.unique(logits)) == 2
