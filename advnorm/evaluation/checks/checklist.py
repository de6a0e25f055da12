"""The checklist of Carlini et al. (2019, https://arxiv.org/abs/1902.06705), section 4.

What must hold between attacks of different strength. Two attacks are compared on the same
samples by the exact sign test; "more steps" by the share of samples that break in addition.
False robustness, the gap between a weak and a strong attack, is sitawarin2021's (3.2).
"""

from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor

from advnorm.attacks import pgd
from advnorm.evaluation.checks.context import (
    CHECKS,
    DECISION_ATTACK,
    DECISION_SAMPLES,
    PGD,
    WEAK,
    AuditContext,
    Finding,
    NotRun,
)
from advnorm.evaluation.checks.significance import clearly_lower, count, exceeds
from advnorm.evaluation.engine import logits_of
from advnorm.model_state import frozen_parameters

QUERIES = "square-500"
MORE_STEPS, MORE_RESTARTS = "pgd-200", "pgd-50x5"
NOISES = 10
HONEST_GAP = 0.1364
"""The largest PGD-10 minus AutoAttack of a sound model in sitawarin2021's Table 2."""


@CHECKS.register("one_step_stronger")
def one_step_stronger(context: AuditContext) -> Finding:
    """Ask whether one step (FGSM) breaks more samples than ten (PGD-10)."""
    return one_step_better(context.robust_under("fgsm"), context.robust_under(WEAK), WEAK)


def one_step_better(single_step: Tensor, many: Tensor, name: str) -> Finding:
    """Compare FGSM with an attack of many steps: which samples are robust under each."""
    return Finding(
        clearly_lower(single_step, many),
        "one step breaks more than many: the loss is rugged, or was trained to mislead "
        "small steps; trust the strongest attack only",
        {"fgsm": _share(single_step), name: _share(many)},
    )


@CHECKS.register("not_monotone_in_eps")
def not_monotone_in_eps(context: AuditContext) -> Finding:
    """Ask whether a larger radius breaks fewer samples than a smaller one."""
    return larger_radius_weaker(
        {t.eps: context.robust_under(PGD, threat=t) for t in context.growing_threats}
    )


def larger_radius_weaker(robust: Mapping[float, Tensor]) -> Finding:
    """Compare one attack at growing radii: which samples are robust at each."""
    return Finding(
        any(clearly_lower(small, large) for small, large in pairwise(robust.values())),
        "a larger radius breaks fewer samples, though it holds all images of the smaller "
        "one: the attack does not search well; use more steps and restarts",
        {f"eps {eps:.4g}": _share(each) for eps, each in robust.items()},
    )


@CHECKS.register("above_chance_at_any_eps")
def above_chance_at_any_eps(context: AuditContext) -> Finding:
    """Ask whether accuracy stays above chance, however large the radius."""
    robust = [
        context.robust_under(PGD, threat=threat) for threat in context.growing_threats
    ][-1]
    chance = 1 / context.clean_logits.shape[1]
    return Finding(
        exceeds(count(robust), len(robust), chance),
        "accuracy does not fall to chance where every image may be reached: the gradients "
        "are masked; find out where they are lost",
        {"accuracy": _share(robust), "chance": chance},
    )


@CHECKS.register("more_steps_help")
def more_steps_help(context: AuditContext) -> Finding:
    """Ask whether four times the steps break more samples."""
    return _in_addition(context, MORE_STEPS)


@CHECKS.register("more_restarts_help")
def more_restarts_help(context: AuditContext) -> Finding:
    """Ask whether five times the starting points break more samples."""
    return _in_addition(context, MORE_RESTARTS)


@CHECKS.register("black_box_stronger")
def black_box_stronger(context: AuditContext) -> Finding:
    """Ask whether Square, which sees no gradient, breaks more samples than PGD."""
    blind, seeing = context.robust_under(QUERIES), context.robust_under(PGD)
    return Finding(
        clearly_lower(blind, seeing),
        "an attack without gradients breaks more than one with them: the gradients are "
        "masked, and the robust accuracy under PGD is false",
        {QUERIES: _share(blind), PGD: _share(seeing)},
    )


@CHECKS.register("decisions_stronger")
def decisions_stronger(context: AuditContext) -> Finding:
    """Ask whether HopSkipJump, which sees decisions alone, breaks what the others left."""
    before, after = context.robust_to_suite, context.robust_to_decisions
    n = len(before) if context.masked else min(DECISION_SAMPLES, len(before))
    return Finding(
        exceeds(count(before & ~after), n, 0.05),
        f"{DECISION_ATTACK}, which sees decisions alone, breaks what gradients and scores "
        "do not: they are masked; report this accuracy",
        {"before": _share(before[:n]), DECISION_ATTACK: _share(after[:n])},
    )


@CHECKS.register("noise_stronger")
def noise_stronger(context: AuditContext) -> Finding:
    """Ask whether ten random perturbations break more samples than PGD."""
    seeing, noisy = context.robust_under(PGD), context.correct.clone()
    for number in range(NOISES):
        draws = context.draws.stream("noise", number)
        noise = draws.normal(*context.images.shape[1:], dtype=context.images.dtype)
        step = context.threat.eps * context.threat.direction(noise)
        x = context.threat.project(context.images + step, context.images)
        noisy &= context.is_correct(context.logits(x))
    return Finding(
        clearly_lower(noisy, seeing),
        "random noise breaks more than gradients do: the gradients are masked, and the "
        "robust accuracy under PGD is false",
        {"noise": _share(noisy), PGD: _share(seeing)},
    )


@CHECKS.register("transfer_stronger")
def transfer_stronger(context: AuditContext) -> Finding:
    """Ask whether images made on a surrogate model break more samples than PGD."""
    if context.surrogate is None:
        raise NotRun("no surrogate was given")
    seeing = context.robust_under(PGD)
    with frozen_parameters(context.surrogate):
        x = pgd(
            logits_of(context.surrogate),
            context.images,
            context.labels,
            context.threat,
            steps=50,
            step_size=2.5 * context.threat.eps / 50,
            draws=context.draws.stream("surrogate"),
        )
    moved = context.is_correct(context.logits(x)) & context.correct
    return Finding(
        clearly_lower(moved, seeing),
        "images made on another model break more than those made on this one: its "
        "gradients are masked",
        {"transfer": _share(moved), PGD: _share(seeing)},
    )


@CHECKS.register("false_robustness")
def false_robustness(context: AuditContext) -> Finding:
    """Ask whether stronger attacks break much of what PGD-10 leaves (sitawarin2021, 3.2).

    In the paper's Table 2 the gap is at most 13.64 points for sound models and at least
    27.48 for those with false robustness. Flagged is a gap whose whole 95% interval is
    above 13.64. The paper's strong attack is AutoAttack; ours is the audit's suite.
    """
    weak, strong = context.robust_under(WEAK), context.strongest
    n = len(weak)
    return Finding(
        exceeds(count(weak & ~strong), n, HONEST_GAP),
        f"stronger attacks ({', '.join(context.suite)}) break what {WEAK} does not: report "
        "the strong accuracy, and train with a KL term or another objective",
        {WEAK: count(weak) / n, "strong": count(strong) / n},
    )


def _in_addition(context: AuditContext, attack: str) -> Finding:
    before = context.robust_under(PGD)
    after = context.robust_under(attack, among=before)
    fell = count(before & ~after)
    return Finding(
        exceeds(fell, len(before), 0.05),
        f"{attack} breaks samples that {PGD} does not: the attack has not converged; use "
        "more of both until nothing changes",
        {PGD: _share(before), f"after {attack}": _share(after)},
    )


def _share(robust: Tensor) -> float:
    return count(robust) / len(robust)
