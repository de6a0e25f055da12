"""A model's attributes before and after a trace: what forward leaves there is not ours."""

from copy import copy
from typing import Any

from torch import nn

Contents = dict[str, tuple[Any, Any]]


def contents(module: nn.Module) -> Contents:
    """Return a module's attributes, and of those that hold others, what they hold."""
    return {
        name: (value, copy(value) if isinstance(value, (dict, list, set)) else None)
        for name, value in vars(module).items()
    }


def made(model: nn.Module, before: Contents) -> dict[str, Any]:
    """Return the tensors that a trace put into a model."""
    found = {name: value for name, value in vars(model).items() if name not in before}
    for kind in ("_parameters", "_buffers"):
        there = before[kind][1]
        found |= {n: v for n, v in vars(model)[kind].items() if n not in there}
    return found


def restore(module: nn.Module, before: Contents) -> None:
    """Put a module's attributes back, and into those that hold others what they held."""
    vars(module).clear()
    for name, (value, held) in before.items():
        vars(module)[name] = value
        if isinstance(value, list):
            value[:] = held
        elif held is not None:
            value.clear()
            value.update(held)
