"""Objectives: ``objective(model, clean, labels, adversary, *, ...) -> Loss``."""

from advnorm.objectives.adversary_cache import Memory
from advnorm.objectives.compatibility import CERTIFIED, TWO_DOMAINS, refuse, refuse_weights
from advnorm.objectives.crown_ibp import crown_ibp
from advnorm.objectives.ibp import ibp
from advnorm.objectives.one_domain import pgd, standard
from advnorm.objectives.passes import Batching, Passes, passes
from advnorm.objectives.registry import OBJECTIVES, Adversary, Loss, Objective
from advnorm.objectives.two_domains import alp, mixed, mixed_kl, trades

__all__ = [
    "CERTIFIED",
    "OBJECTIVES",
    "TWO_DOMAINS",
    "Adversary",
    "Batching",
    "Loss",
    "Memory",
    "Objective",
    "Passes",
    "alp",
    "crown_ibp",
    "ibp",
    "mixed",
    "mixed_kl",
    "passes",
    "pgd",
    "refuse",
    "refuse_weights",
    "standard",
    "trades",
]
