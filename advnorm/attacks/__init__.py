"""Attacks: ``attack(logits_fn, clean, labels, threat, *, ...) -> adversarial``."""

from advnorm.attacks.apgd import apgd, apgd_ce, apgd_dlr, apgd_t
from advnorm.attacks.classify import classify
from advnorm.attacks.cw import CWResult, CWSettings, cw, cw_distance
from advnorm.attacks.fab import fab_distance, fab_t
from advnorm.attacks.fooling import FoolingImages, fooling, transform
from advnorm.attacks.hop_skip_jump import hop_skip_jump
from advnorm.attacks.losses import dlr, dlr_reason, targeted_dlr, targeted_dlr_reason
from advnorm.attacks.names import AttackName, parse_attack
from advnorm.attacks.pgd import NonFiniteGradientError, bim, fgsm, pgd
from advnorm.attacks.registry import ATTACKS, AttackEntry
from advnorm.attacks.square import square
from advnorm.attacks.target_order import ORDERS, TargetOrder
from advnorm.attacks.targets import (
    GOALS,
    AttackGoal,
    Gain,
    LogitsFn,
    divergence,
    hard_labels,
    log_probabilities,
    untargeted,
)

__all__ = [
    "ATTACKS",
    "GOALS",
    "ORDERS",
    "AttackEntry",
    "AttackGoal",
    "AttackName",
    "CWResult",
    "CWSettings",
    "FoolingImages",
    "Gain",
    "LogitsFn",
    "NonFiniteGradientError",
    "TargetOrder",
    "apgd",
    "apgd_ce",
    "apgd_dlr",
    "apgd_t",
    "bim",
    "classify",
    "cw",
    "cw_distance",
    "divergence",
    "dlr",
    "dlr_reason",
    "fab_distance",
    "fab_t",
    "fgsm",
    "fooling",
    "hard_labels",
    "hop_skip_jump",
    "log_probabilities",
    "parse_attack",
    "pgd",
    "square",
    "targeted_dlr",
    "targeted_dlr_reason",
    "transform",
    "untargeted",
]
