"""Models of the user's own: a module, or a function that returns one."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import torch
from torch import nn

from advnorm.model_output import with_logits_only
from advnorm.models.registry import BuildContext

Source = nn.Module | Callable[..., nn.Module]
"""A network, or a function (or class) that returns one."""
_OF_DATA = ("norm", "classes", "num_classes", "shape")
"""Arguments that a function gets where it asks for them; the others are its options."""


def takes_norm(build: Callable[..., nn.Module]) -> bool:
    """Return whether a user's model asks for its norm."""
    return "norm" in getattr(build, "arguments", ("norm",))


def entry_of(
    source: Source,
    name: str,
    scope: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Callable[..., nn.Module]:
    """Return an entry of the registry that builds a network of the user's own.

    A function gets the norm, the classes and the shape of the images where it asks for
    them; its other arguments are options. ``scope`` is where the user's code runs.
    """
    parameters = {} if isinstance(source, nn.Module) else _parameters(source)

    def build(context: BuildContext, **options: Any) -> nn.Module:
        values = dict(
            norm=context.norm,
            classes=context.classes,
            num_classes=context.classes,
            shape=context.shape,
        )
        if not isinstance(source, nn.Module):
            _require(parameters, options, name)
        arguments = {key: values[key] for key in _OF_DATA if key in parameters}
        with scope():
            network = _built(source, arguments | options)
        if not isinstance(network, nn.Module):
            raise ValueError(
                f"{name} is neither a torch.nn.Module nor a function that returns one"
            )
        images = torch.zeros(2, *context.shape)
        return context.assemble_network(
            with_logits_only(network, images, classes=context.classes)
        )

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{name}: a model of your own."
    build.__annotations__ = _annotations(source)
    vars(build)["__signature__"] = Signature(_options(parameters))
    vars(build)["arguments"] = tuple(parameters)
    return build


def _built(source: Source, arguments: dict[str, Any]) -> nn.Module:
    """Return a copy of a network, or a new one from the function: none is used twice."""
    if isinstance(source, nn.Module):
        return deepcopy(source)
    return source(**arguments)


def _parameters(source: Callable[..., nn.Module]) -> dict[str, Parameter]:
    try:
        parameters = signature(source).parameters
    except (TypeError, ValueError):  # of a function in C
        return {}
    for parameter in parameters.values():
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            raise ValueError(
                f"{name_of(source)} takes {parameter.name} by its position only: remove "
                "the / from its arguments"
            )
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
    return {key: p for key, p in parameters.items() if p.kind in kinds}


def _options(parameters: dict[str, Parameter]) -> list[Parameter]:
    """Return what a recipe may set; an argument without a default has ``None``."""
    options = []
    for name, parameter in parameters.items():
        if name not in _OF_DATA and parameter.kind is Parameter.VAR_KEYWORD:
            options.append(parameter)
        elif name not in _OF_DATA:
            default = None if parameter.default is Parameter.empty else parameter.default
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, default=default))
    return sorted(options, key=lambda p: p.kind)


def _require(parameters: dict[str, Parameter], options: dict[str, Any], name: str) -> None:
    for key, parameter in parameters.items():
        needed = parameter.default is Parameter.empty and key not in (*_OF_DATA, *options)
        if needed and parameter.kind is not Parameter.VAR_KEYWORD:
            raise ValueError(
                f"{name} needs a value of {key!r}: set model.options.{key}=VALUE, or give "
                "it a default"
            )


def _annotations(source: Source) -> dict[str, Any]:
    """Return the types of a function's arguments, as far as they can be read."""
    function = getattr(source, "__init__", None) if isinstance(source, type) else source
    while isinstance(function, partial):
        function = function.func
    try:
        return {} if isinstance(source, nn.Module) else get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        return {}


def name_of(source: Any) -> str:
    """Return what a model that was passed in Python is called."""
    while isinstance(source, partial):
        source = source.func
    if isinstance(source, nn.Module):
        return type(source).__name__
    if not callable(source):
        raise ValueError(
            f"model is a torch.nn.Module, a function that returns one, or 'FILE.py:NAME', "
            f"not {type(source).__name__}"
        )
    return getattr(source, "__qualname__", type(source).__name__)
