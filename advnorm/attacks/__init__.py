"""Attacks: ``attack(logits_fn, clean, labels, threat, *, ...) -> adversarial``."""

from advnorm.attacks.aims import (
    AIMS,
    Aim,
    Gain,
    LogitsFn,
    divergence,
    hard_labels,
    untargeted,
)
from advnorm.attacks.pgd import NonFiniteGradientError, bim, fgsm, pgd
from advnorm.attacks.registry import ATTACKS, FROM_CLEAN

__all__ = [
    "AIMS",
    "ATTACKS",
    "FROM_CLEAN",
    "Aim",
    "Gain",
    "LogitsFn",
    "NonFiniteGradientError",
    "bim",
    "divergence",
    "fgsm",
    "hard_labels",
    "pgd",
    "untargeted",
]
