"""Models of packages that the user may have: ``timm:resnet18``, ``hf:org/name``.

Neither package is needed otherwise. A name is data: no code of a model's repository is run.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import nn

from advnorm.model_output import LogitsOnly
from advnorm.models.registry import PACKAGES, BuildContext
from advnorm.models.standardize import Standardize
from advnorm.text import on_one_line, shorten


@PACKAGES.register("timm")
def timm(
    name: str, context: BuildContext, *, pretrained: bool = False, **options: Any
) -> nn.Module:
    """Build a model of timm (``pip install timm``); other options are timm's own."""
    if not re.fullmatch(r"[\w.]+", name):
        raise ValueError(
            f"timm:{shorten(name)} is no name of timm's, such as timm:resnet18"
        )
    package = _import(lambda: import_module("timm"), f"timm:{name}", "timm")
    with _explained(f"timm:{name}", "timm"):
        network = package.create_model(
            name,
            pretrained=pretrained,
            num_classes=context.classes,
            in_chans=context.shape[0],
            **options,
        )
    settings = getattr(network, "pretrained_cfg", {}) if pretrained else {}
    return _assembled(context, network, settings.get("mean"), settings.get("std"))


@PACKAGES.register("hf")
def hf(name: str, context: BuildContext, *, pretrained: bool = True) -> nn.Module:
    """Build an image classifier of Hugging Face (``pip install transformers``)."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ValueError(f"hf:{shorten(name)} is no name such as hf:org/name")
    package = _import(lambda: import_module("transformers"), f"hf:{name}", "transformers")
    with _explained(f"hf:{name}", "transformers"):
        network, mean, std = _hf_network(package, name, context.classes, pretrained)
    return _assembled(context, LogitsOnly(network), mean, std)


def _hf_network(package: Any, name: str, classes: int, pretrained: bool) -> Any:
    """Return a network of Hugging Face, and the moments that its weights expect, if any."""
    safe = {"trust_remote_code": False}
    config = package.AutoConfig.from_pretrained(name, num_labels=classes, **safe)
    kind = package.AutoModelForImageClassification
    if not pretrained:
        return kind.from_config(config), None, None
    network = kind.from_pretrained(
        name, config=config, use_safetensors=True, ignore_mismatched_sizes=True, **safe
    )
    images = package.AutoImageProcessor.from_pretrained(name, **safe)
    mean, std = (getattr(images, f"image_{key}", None) for key in ("mean", "std"))
    return network, mean, std


def _assembled(context: BuildContext, network: nn.Module, mean: Any, std: Any) -> nn.Module:
    """Put standardization in front: that of the pretrained weights, or the recipe's."""
    if mean is None or std is None:
        return context.assemble_network(network)
    if context.standardize is not None:
        raise ValueError(
            f"the pretrained weights of {context.name} have their own standardization: set "
            "model.standardize=none"
        )
    return nn.Sequential(Standardize(list(mean), list(std)), network)


def _import(load: Callable[[], ModuleType], model: str, name: str) -> Any:
    """Import a package that the user may have."""
    try:
        return load()
    except Exception as error:  # a package that does not fit torch raises anything
        raise ValueError(
            f"{model} needs the package {name}, which cannot be imported "
            f"({on_one_line(error)}): pip install {name}"
        ) from error


@contextmanager
def _explained(model: str, package: str) -> Iterator[None]:
    """Say that a package cannot build a model: no such name, option or connection."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{package} cannot build {model} ({on_one_line(error)}): check the name, "
            "model.options and the connection"
        ) from error
