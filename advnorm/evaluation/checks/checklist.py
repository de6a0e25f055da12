"""The checklist of Carlini et al. (2019, https://arxiv.org/abs/1902.06705), section 4.

What must hold between attacks of different strength. Two attacks are compared on the same
samples by the exact sign test; "more steps" by the share of samples that fall in addition.
"""

from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor

from advnorm.attacks import pgd
from advnorm.evaluation.checks.context import (
    CHECKS,
    DECIDED,
    DECISIONS,
    PGD,
    WEAK,
    Finding,
    NotRun,
    Subject,
)
from advnorm.evaluation.checks.radii import growing
from advnorm.evaluation.checks.significance import clearly_lower, count, exceeds
from advnorm.evaluation.engine import logits_of
from advnorm.model_state import frozen_parameters

QUERIES = "square-500"
MORE_STEPS, MORE_RESTARTS = "pgd-200", "pgd-50x5"
NOISES = 10


@CHECKS.register("one_step_stronger")
def one_step_stronger(subject: Subject) -> Finding:
    """Ask whether one step (FGSM) breaks more samples than ten (PGD-10)."""
    return one_step_better(subject.standing("fgsm"), subject.standing(WEAK), WEAK)


def one_step_better(one: Tensor, many: Tensor, name: str) -> Finding:
    """Compare FGSM with an attack of many steps: which samples are robust under each."""
    return Finding(
        clearly_lower(one, many),
        "one step breaks more than many: the loss is rugged, or was trained to mislead "
        "small steps; trust the strongest attack only",
        {"fgsm": _rate(one), name: _rate(many)},
    )


@CHECKS.register("not_monotone_in_eps")
def not_monotone_in_eps(subject: Subject) -> Finding:
    """Ask whether a larger radius breaks fewer samples than a smaller one."""
    return larger_radius_weaker(
        {t.eps: subject.standing(PGD, threat=t) for t in growing(subject)}
    )


def larger_radius_weaker(robust: Mapping[float, Tensor]) -> Finding:
    """Compare one attack at growing radii: which samples are robust at each."""
    return Finding(
        any(clearly_lower(small, large) for small, large in pairwise(robust.values())),
        "a larger radius breaks fewer samples, though it holds all images of the smaller "
        "one: the attack does not search well; use more steps and restarts",
        {f"eps {eps:.4g}": _rate(each) for eps, each in robust.items()},
    )


@CHECKS.register("above_chance_at_any_eps")
def above_chance_at_any_eps(subject: Subject) -> Finding:
    """Ask whether accuracy stays above chance, however large the radius."""
    stands = [subject.standing(PGD, threat=threat) for threat in growing(subject)][-1]
    chance = 1 / subject.clean_logits.shape[1]
    return Finding(
        exceeds(count(stands), len(stands), chance),
        "accuracy does not fall to chance where every image may be reached: the gradients "
        "are masked; find out where they are lost",
        {"accuracy": _rate(stands), "chance": chance},
    )


@CHECKS.register("more_steps_help")
def more_steps_help(subject: Subject) -> Finding:
    """Ask whether four times the steps break more samples."""
    return _in_addition(subject, MORE_STEPS)


@CHECKS.register("more_restarts_help")
def more_restarts_help(subject: Subject) -> Finding:
    """Ask whether five times the starting points break more samples."""
    return _in_addition(subject, MORE_RESTARTS)


@CHECKS.register("black_box_stronger")
def black_box_stronger(subject: Subject) -> Finding:
    """Ask whether Square, which sees no gradient, breaks more samples than PGD."""
    blind, seeing = subject.standing(QUERIES), subject.standing(PGD)
    return Finding(
        clearly_lower(blind, seeing),
        "an attack without gradients breaks more than one with them: the gradients are "
        "masked, and the robust accuracy under PGD is false",
        {QUERIES: _rate(blind), PGD: _rate(seeing)},
    )


@CHECKS.register("decisions_stronger")
def decisions_stronger(subject: Subject) -> Finding:
    """Ask whether HopSkipJump, which sees decisions alone, breaks what the others left."""
    before, after = subject.left, subject.decided
    n = len(before) if subject.masked else min(DECIDED, len(before))
    return Finding(
        exceeds(count(before & ~after), n, 0.05),
        f"{DECISIONS}, which sees decisions alone, breaks what gradients and scores do "
        "not: they are masked; report this accuracy",
        {"before": _rate(before[:n]), DECISIONS: _rate(after[:n])},
    )


@CHECKS.register("noise_stronger")
def noise_stronger(subject: Subject) -> Finding:
    """Ask whether ten random perturbations break more samples than PGD."""
    seeing, noisy = subject.standing(PGD), subject.right.clone()
    for number in range(NOISES):
        draws = subject.draws.stream("noise", number)
        noise = draws.normal(*subject.images.shape[1:], dtype=subject.images.dtype)
        step = subject.threat.eps * subject.threat.direction(noise)
        x = subject.threat.project(subject.images + step, subject.images)
        noisy &= subject.classified_well(subject.logits(x))
    return Finding(
        clearly_lower(noisy, seeing),
        "random noise breaks more than gradients do: the gradients are masked, and the "
        "robust accuracy under PGD is false",
        {"noise": _rate(noisy), PGD: _rate(seeing)},
    )


@CHECKS.register("transfer_stronger")
def transfer_stronger(subject: Subject) -> Finding:
    """Ask whether images made on a surrogate model break more samples than PGD."""
    if subject.surrogate is None:
        raise NotRun("no surrogate was given")
    seeing = subject.standing(PGD)
    with frozen_parameters(subject.surrogate):
        x = pgd(
            logits_of(subject.surrogate),
            subject.images,
            subject.labels,
            subject.threat,
            steps=50,
            step_size=2.5 * subject.threat.eps / 50,
            draws=subject.draws.stream("surrogate"),
        )
    moved = subject.classified_well(subject.logits(x)) & subject.right
    return Finding(
        clearly_lower(moved, seeing),
        "images made on another model break more than those made on this one: its "
        "gradients are masked",
        {"transfer": _rate(moved), PGD: _rate(seeing)},
    )


def _in_addition(subject: Subject, attack: str) -> Finding:
    before = subject.standing(PGD)
    after = subject.standing(attack, among=before)
    fell = count(before & ~after)
    return Finding(
        exceeds(fell, len(before), 0.05),
        f"{attack} breaks samples that {PGD} does not: the attack has not converged; use "
        "more of both until nothing changes",
        {PGD: _rate(before), f"after {attack}": _rate(after)},
    )


def _rate(stands: Tensor) -> float:
    return count(stands) / len(stands)
