"""Anonymous (2022): adversarially perturbed batch normalization, APART."""

from advnorm.papers.apart2022 import ablation, accuracy, attack, large

__all__ = ["ablation", "accuracy", "attack", "large"]
