"""The models by name, what each is built from, and what a recipe may set on it."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

from torch import nn

from advnorm import registry
from advnorm.norms import Norm

MODELS: registry.Registry[Callable[..., nn.Module]] = registry.Registry("model")
"""Each maps a :class:`BuildContext` and its own options to a network."""


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
    return registry.options(MODELS[name])


def check_options(name: str, values: Mapping[str, object]) -> None:
    """Refuse options that the model ``name`` does not have, or of a wrong type or range."""
    registry.validate(MODELS[name], values, owner=f"model {name!r}")


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
    model = registry.bind(MODELS[name], options or {}, owner=f"model {name!r}")
    return model(BuildContext(name, tuple(shape), classes, norm, standardize))
