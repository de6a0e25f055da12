"""Sridhar et al. (2021): batch normalization mitigates adversarial instability."""

from advnorm.papers.sridhar2021 import adversarial, certified, landscape, residual

__all__ = ["adversarial", "certified", "landscape", "residual"]
