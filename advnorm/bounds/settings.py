"""Which settings of a layer its rules are for; every other value is refused by name.

A layer's settings are attributes, which may be set to anything after it was built: to what
no rule is for, to what its ``forward`` does not read, or to what its weights contradict.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn


class Setting(NamedTuple):
    """A setting, which layers have it as rules understand it, and that in words."""

    name: str
    fits: Callable[[Any], bool]
    wanted: str


def _equal(name: str, number: float) -> Setting:
    return Setting(
        name, lambda layer: getattr(layer, name) == number, f"{name} = {number:g}"
    )


def _above_zero(name: str) -> Setting:
    return Setting(name, lambda layer: getattr(layer, name) > 0, f"{name} > 0")


def _of_weight(name: str, dim: int, groups: bool = False) -> Setting:
    def fits(layer: Any) -> bool:
        times = layer.groups if groups else 1
        return bool(getattr(layer, name) == layer.weight.shape[dim] * times)

    return Setting(name, fits, f"the {name} of its weights")


_CONVOLUTION: tuple[Setting, ...] = (
    _of_weight("out_channels", 0),
    _of_weight("in_channels", 1, groups=True),
    Setting(
        "kernel_size",
        lambda layer: tuple(layer.kernel_size) == tuple(layer.weight.shape[2:]),
        "the kernel_size of its weights",
    ),
    Setting(
        "padding_mode",
        lambda layer: layer.padding_mode in ("zeros", "reflect", "replicate", "circular"),
        "padding_mode zeros, reflect, replicate or circular",
    ),
)
_DIVISOR = Setting(
    "divisor_override",
    lambda layer: layer.divisor_override is None or layer.divisor_override > 0,
    "divisor_override > 0, or None",
)
_INDICES = Setting(
    "return_indices", lambda layer: not layer.return_indices, "return_indices=False"
)
SETTINGS: dict[type[nn.Module], tuple[Setting, ...]] = {
    nn.Conv1d: _CONVOLUTION,
    nn.Conv2d: _CONVOLUTION,
    nn.Conv3d: _CONVOLUTION,
    nn.AvgPool2d: (_DIVISOR,),
    nn.MaxPool1d: (_INDICES,),
    nn.MaxPool2d: (_INDICES,),
    nn.AdaptiveMaxPool1d: (_INDICES,),
    nn.AdaptiveMaxPool2d: (_INDICES,),
    nn.ReLU6: (_equal("min_val", 0), _equal("max_val", 6)),  # its forward reads neither
    nn.Softplus: (_above_zero("beta"),),
    nn.CELU: (_above_zero("alpha"),),
    nn.ZeroPad2d: (_equal("value", 0),),
    nn.GELU: (
        Setting(
            "approximate",
            lambda layer: layer.approximate in ("none", "tanh"),
            "approximate='none' or 'tanh'",
        ),
    ),
}
"""Settings with values that rules are not for, or that may not fit together."""


def refuse_settings(layer: nn.Module) -> None:
    """Refuse a layer with a setting that its rules are not for."""
    for setting in SETTINGS.get(type(layer), ()):
        if not setting.fits(layer):
            value = getattr(layer, setting.name)
            raise NotImplementedError(
                f"no certificate with {setting.name}={value!r}: its rule is for "
                f"{setting.wanted}"
            )
