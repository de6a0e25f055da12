"""The models by name, and the options of each."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from advnorm import registry
from advnorm.norms import Norm

MODELS: registry.Registry[Callable[..., nn.Module]] = registry.Registry("model")
_COMMON = ("shape", "classes", "norm", "standardize")
"""What every model is built from; the other parameters are its options."""


def variant(
    function: Callable[..., nn.Module], size: object, summary: str
) -> Callable[..., nn.Module]:
    """Return the member of a family of one size, with a line of its own in the list."""
    member = partial(function, size)
    member.__doc__ = summary
    return member


def options(name: str) -> dict[str, object]:
    """Return the options of a model beyond shape, classes, norm and standardize.

    >>> from advnorm.models import options
    >>> options("resnet20")
    {'width': 16, 'recompute': False}
    """
    return registry.options(MODELS[name], without=_COMMON)


def check_options(name: str, values: Mapping[str, object]) -> None:
    """Refuse options that the model ``name`` does not have, or of another type."""
    registry.validate(MODELS[name], values, owner=f"model {name!r}", without=_COMMON)


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
    values = options or {}
    constructor = registry.bind(
        MODELS[name], values, owner=f"model {name!r}", without=_COMMON
    )
    return constructor(
        shape=tuple(shape), classes=classes, norm=norm, standardize=standardize
    )
