"""Galloway et al. (2019): batch normalization is a cause of adversarial vulnerability."""

from advnorm.papers.galloway2019 import (
    cifar,
    corruptions,
    dimension,
    lenet,
    linear,
    plane,
)

__all__ = ["cifar", "corruptions", "dimension", "lenet", "linear", "plane"]
