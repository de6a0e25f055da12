"""Galloway et al. (2019): batch normalization is a cause of adversarial vulnerability."""

from advnorm.papers.galloway2019 import (
    cifar,
    corruptions,
    depth,
    dimension,
    imagenet,
    lenet,
    linear,
    mnist_c,
    perceptron,
    plane,
    rates,
    residual,
    svhn,
)

__all__ = [
    "cifar",
    "corruptions",
    "depth",
    "dimension",
    "imagenet",
    "lenet",
    "linear",
    "mnist_c",
    "perceptron",
    "plane",
    "rates",
    "residual",
    "svhn",
]
