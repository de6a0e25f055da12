"""Objectives: ``objective(model, clean, labels, adversary, *, ...) -> Loss``."""

from advnorm.objectives.adversary_cache import AdversaryCache
from advnorm.objectives.batching import Batching, DomainLogits, forward_domains
from advnorm.objectives.compatibility import (
    CERTIFIED,
    TWO_DOMAINS,
    check_combination,
    check_weights,
)
from advnorm.objectives.crown_ibp import crown_ibp
from advnorm.objectives.ibp import ibp
from advnorm.objectives.one_domain import pgd, standard
from advnorm.objectives.registry import OBJECTIVES, Adversary, Loss, Objective
from advnorm.objectives.two_domains import alp, mixed, mixed_kl, trades

__all__ = [
    "CERTIFIED",
    "OBJECTIVES",
    "TWO_DOMAINS",
    "Adversary",
    "AdversaryCache",
    "Batching",
    "DomainLogits",
    "Loss",
    "Objective",
    "alp",
    "check_combination",
    "check_weights",
    "crown_ibp",
    "forward_domains",
    "ibp",
    "mixed",
    "mixed_kl",
    "pgd",
    "standard",
    "trades",
]
