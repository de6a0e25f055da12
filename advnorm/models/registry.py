"""The models by name, the context that each is built from, and their options."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from torch import nn

from advnorm import registry
from advnorm.norms import Norm

MODELS: registry.Registry[Callable[..., nn.Module]] = registry.Registry("model")
"""Each maps a :class:`BuildContext` and its own options to a network."""

PACKAGES: registry.Registry[Callable[..., nn.Module]] = registry.Registry("package")
"""Packages of models that the user may have: ``timm:resnet18`` is a model of timm's."""


class UserModel(NamedTuple):
    """A model that the user has named on the command line, or passed in Python."""

    name: str
    build: Callable[..., nn.Module]
    """An entry like those of :data:`MODELS`."""
    digest: str | None = None
    """The SHA-256 of its file; a model passed in Python has none."""


_IN_USE: ContextVar[Mapping[str, UserModel]] = ContextVar(
    "user models", default=MappingProxyType({})
)


@contextmanager
def use_models(*models: UserModel) -> Iterator[None]:
    """Let recipes find these models by their names during a block, and no longer."""
    before = _IN_USE.get()
    for model in models:
        add_model(model)
    try:
        yield
    finally:
        _IN_USE.set(before)


def add_model(model: UserModel) -> None:
    """Let recipes find a model by its name until the end of the present context.

    The context is that of :mod:`contextvars`: a command line runs each command in its own.
    """
    _IN_USE.set({**_IN_USE.get(), model.name: model})


def models_in_use() -> list[UserModel]:
    """Return the models that the user has named or passed, in that order."""
    return list(_IN_USE.get().values())


def is_file_model(name: str) -> bool:
    """Return whether a name is that of a model in a Python file.

    >>> is_file_model("mine.py:build"), is_file_model("runs/a")
    (True, False)

    A name without the model after the colon is one too, and refused where it is loaded.
    """
    return ".py:" in name or name.endswith(".py")


def is_user_model(name: str) -> bool:
    """Return whether a model is the user's own: of a file, of Python, of a package."""
    if name not in MODELS:
        return name in _IN_USE.get() or ":" in name
    entry = MODELS[name]
    while isinstance(entry, partial):
        entry = entry.func
    return not entry.__module__.startswith("advnorm.")


def find_model(name: str) -> Callable[..., nn.Module]:
    """Return what builds a model; one of a file only where the user has named the file."""
    if name in _IN_USE.get():
        return _IN_USE.get()[name].build
    if is_file_model(name):
        raise ValueError(
            f"the model {name} is code of a file, which is run only where you name it: add "
            f"--set model.name={name}, or in Python model={name!r}"
        )
    if name.startswith("python:"):
        raise ValueError(
            f"the model {name.removeprefix('python:')} was passed in Python: pass it again "
            "as model=, or name its file with --set model.name=FILE.py:NAME"
        )
    package, colon, model = name.partition(":")
    if colon and package in PACKAGES:
        return partial(PACKAGES[package], model)
    if name not in MODELS:
        error = registry.unknown("model", name, list(MODELS))
        raise ValueError(
            f"{error}; for one of your own write FILE.py:NAME, or in Python pass model="
        )
    return MODELS[name]


@dataclass(frozen=True)
class BuildContext:
    """What every model is built from, with the checks and the assembly they share."""

    name: str
    shape: tuple[int, ...]
    classes: int
    norm: Norm
    standardize: nn.Module | None = None

    def image_shape(self, *, min_size: int = 1) -> tuple[int, int, int]:
        """Return (channels, height, width); both sides must be at least ``min_size``."""
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ValueError(
                f"{self.name} takes images of shape (channels, height, width), not "
                f"{self.shape}: for vectors choose linear or mlp"
            )
        channels, height, width = self.shape
        if min(height, width) < min_size:
            raise ValueError(
                f"{self.name} takes images of at least {min_size}x{min_size}, not "
                f"{height}x{width}: set data.size, or choose another model"
            )
        return channels, height, width

    def features(self) -> int:
        """Return the number of values in one input of any shape."""
        if not self.shape or min(self.shape) < 1:
            raise ValueError(
                f"{self.name} takes inputs of a shape like (2,), not {self.shape}"
            )
        return prod(self.shape)

    def assemble(self, layers: Mapping[str, nn.Module]) -> nn.Sequential:
        """Chain the layers of a network, standardization first."""
        first = nn.Identity() if self.standardize is None else self.standardize
        return nn.Sequential(OrderedDict(standardize=first, **layers))

    def assemble_network(self, network: nn.Module) -> nn.Module:
        """Put standardization in front of a whole network, where there is any."""
        if self.standardize is None:
            return network
        return self.assemble({"network": network})


def variant(
    family: Callable[..., nn.Module], *size: int, summary: str
) -> Callable[..., nn.Module]:
    """Return a family's member of one size, with a line of its own in the list."""
    member = partial(family, *size)
    member.__doc__ = summary
    return member


def options(name: str) -> dict[str, object]:
    """Return the options of a model, with their defaults.

    >>> from advnorm.models import options
    >>> options("resnet20")
    {'width': 16, 'recompute': False}
    """
    return registry.options(find_model(name))


def check_options(name: str, values: Mapping[str, object]) -> None:
    """Refuse options that the model ``name`` does not have, or of a wrong type or range."""
    _bind(name, values)


def _bind(name: str, values: Mapping[str, object]) -> Callable[..., nn.Module]:
    """Return a model with its options set; one with ``**options`` takes any."""
    entry = find_model(name)
    parameters = signature(entry).parameters
    free = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    more = {key: values[key] for key in values if free and key not in parameters}
    own = {key: value for key, value in values.items() if key not in more}
    return partial(registry.bind(entry, own, owner=f"model {name!r}"), **more)


def build(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    options: Mapping[str, object] | None = None,
) -> nn.Module:
    """Build the model ``name``; its options are those of :func:`options`."""
    if classes < 1:
        raise ValueError(f"a model needs at least one class, not {classes}")
    model = _bind(name, options or {})
    return model(BuildContext(name, tuple(shape), classes, norm, standardize))
