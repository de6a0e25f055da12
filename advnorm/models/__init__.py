"""Models, one family per file. The norm is an argument, standardization the first layer."""

from advnorm.models import (
    cifar_resnet,
    cnn,
    fixup,
    imagenet_resnet,
    lenet,
    linear,
    packages,
    preact_resnet,
    vgg,
    wide_resnet,
)
from advnorm.models.registry import (
    MODELS,
    PACKAGES,
    BuildContext,
    UserModel,
    add_model,
    build,
    check_options,
    find_model,
    is_file_model,
    is_user_model,
    models_in_use,
    options,
    use_models,
)
from advnorm.models.standardize import PerImageStandardize, Standardize
from advnorm.models.tiled_linear import TiledLinear, untile
from advnorm.models.user_files import as_user_model, load_user_model, place_in_files
from advnorm.models.user_models import Source, takes_norm

__all__ = [
    "MODELS",
    "PACKAGES",
    "BuildContext",
    "PerImageStandardize",
    "Source",
    "Standardize",
    "TiledLinear",
    "UserModel",
    "add_model",
    "as_user_model",
    "build",
    "check_options",
    "cifar_resnet",
    "cnn",
    "find_model",
    "fixup",
    "imagenet_resnet",
    "is_file_model",
    "is_user_model",
    "lenet",
    "linear",
    "load_user_model",
    "models_in_use",
    "options",
    "packages",
    "place_in_files",
    "preact_resnet",
    "takes_norm",
    "untile",
    "use_models",
    "vgg",
    "wide_resnet",
]
