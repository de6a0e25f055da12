"""The constructor call of a ``torch.nn`` layer, as source code."""

from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn

_PLACEMENT = ("device", "dtype")


def is_torch_layer(layer: nn.Module) -> bool:
    """Tell whether a layer is of a class of ``torch.nn`` itself."""
    return getattr(nn, type(layer).__name__, None) is type(layer)


def layer_source(path: str, layer: nn.Module) -> str:
    """Return the call that builds a layer like this one, without its weights.

    >>> layer_source("conv", nn.Conv2d(1, 8, 3, bias=False))
    'nn.Conv2d(1, 8, (3, 3), bias=False)'
    """
    parameters = [
        parameter
        for parameter in signature(type(layer)).parameters.values()
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    arguments = []
    for parameter in parameters:
        value = _value(path, layer, parameter)
        if parameter.name in _PLACEMENT or _same(value, parameter.default):
            continue
        required = parameter.default is parameter.empty
        text = _literal(path, layer, value)
        arguments.append(text if required else f"{parameter.name}={text}")
    return f"nn.{type(layer).__name__}({', '.join(arguments)})"


def _value(path: str, layer: nn.Module, parameter: Parameter) -> Any:
    """Return the constructor's argument, read from the layer's attributes."""
    name = parameter.name
    value = getattr(layer, name, parameter.default)
    if name == "bias" and hasattr(layer, name):
        return value if isinstance(value, bool) else value is not None
    if value is parameter.empty:
        raise NotImplementedError(
            f"layer {path!r} ({type(layer).__name__}) does not tell its argument {name!r}, "
            "so no source code can be written for it: export to onnx or torchscript"
        )
    return value


def _same(value: Any, default: Any) -> bool:
    """Tell whether a value is the default, also where the layer made a pair of it."""
    pair = isinstance(value, tuple) and not isinstance(default, tuple)
    if default is Parameter.empty:
        return False
    return all(item == default for item in value) if pair else bool(value == default)


def _literal(path: str, layer: nn.Module, value: Any) -> str:
    if isinstance(value, torch.Size):
        value = tuple(value)
    items = value if isinstance(value, tuple | list) else [value]
    if not all(isinstance(item, bool | int | float | str | None) for item in items):
        raise NotImplementedError(
            f"layer {path!r} ({type(layer).__name__}) has an argument of type "
            f"{type(value).__name__}, which no source code can be written for: export to "
            "onnx or torchscript"
        )
    return repr(value)
