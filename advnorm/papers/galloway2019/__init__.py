"""Galloway et al. (2019): batch normalization is a cause of adversarial vulnerability."""

from advnorm.papers.galloway2019 import dimension, lenet, linear, plane

__all__ = ["dimension", "lenet", "linear", "plane"]
