"""Models, one family a file. The norm is an argument, standardization the first layer."""

from advnorm.models import (
    cifar_resnet,
    cnn,
    fixup,
    imagenet_resnet,
    lenet,
    linear,
    preact_resnet,
    vgg,
    wide_resnet,
)
from advnorm.models.registry import MODELS, BuildContext, build, check_options, options
from advnorm.models.standardize import PerImageStandardize, Standardize
from advnorm.models.tiled_linear import TiledLinear, untile

__all__ = [
    "MODELS",
    "BuildContext",
    "PerImageStandardize",
    "Standardize",
    "TiledLinear",
    "build",
    "check_options",
    "cifar_resnet",
    "cnn",
    "fixup",
    "imagenet_resnet",
    "lenet",
    "linear",
    "options",
    "preact_resnet",
    "untile",
    "vgg",
    "wide_resnet",
]
