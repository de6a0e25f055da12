"""The attacks by name."""

from collections.abc import Callable

from torch import Tensor

from advnorm.registry import Registry

ATTACKS: Registry[Callable[..., Tensor]] = Registry("attack")
