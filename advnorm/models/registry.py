"""The models by name, and what a recipe may set on each of them."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature

from torch import nn

from advnorm.norms import Norm
from advnorm.registry import Registry, unknown

Option = int | float | bool | str
MODELS: Registry[Callable[..., nn.Module]] = Registry("model")
_COMMON = ("shape", "classes", "norm", "standardize")


def variant(
    function: Callable[..., nn.Module], size: object, summary: str
) -> Callable[..., nn.Module]:
    """Return the member of a family of one size, with a line of its own in the list."""
    member = partial(function, size)
    member.__doc__ = summary
    return member


def options(name: str) -> dict[str, Option]:
    """Return the options of a model beyond shape, classes, norm and standardize.

    >>> from advnorm.models import options
    >>> options("resnet20")
    {'width': 16, 'recompute': False}
    """
    found = signature(MODELS[name]).parameters
    return {key: found[key].default for key in found if key not in _COMMON}


def build(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    options: Mapping[str, Option] | None = None,
) -> nn.Module:
    """Build the model ``name``, after checking its options against :func:`options`."""
    if classes < 1:
        raise ValueError(f"a model needs at least one class, not {classes}")
    given = dict(options or {})
    for key, value in given.items():
        _check(name, key, value)
    return MODELS[name](
        shape=tuple(shape), classes=classes, norm=norm, standardize=standardize, **given
    )


def _check(name: str, key: str, value: Option) -> None:
    """Refuse an option that the model does not have, or a value of another type."""
    defaults = options(name)
    if not defaults:
        raise ValueError(f"model {name!r} has no options: remove {key!r}")
    if key not in defaults:
        raise unknown(f"option of model {name!r} called", key, list(defaults))
    wanted = type(defaults[key])
    fits = type(value) is wanted or (wanted is float and type(value) is int)
    if not fits:
        raise ValueError(
            f"option {key!r} of model {name!r} is a {wanted.__name__}, not {value!r}"
        )
