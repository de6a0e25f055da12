"""Objectives: ``objective(model, clean, labels, adversary) -> Loss``."""

from advnorm.objectives.one_domain import pgd, standard
from advnorm.objectives.registry import OBJECTIVES, Adversary, Loss, Objective

__all__ = ["OBJECTIVES", "Adversary", "Loss", "Objective", "pgd", "standard"]
