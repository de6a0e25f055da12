"""The attacks by name."""

from collections.abc import Callable

from torch import Tensor

from advnorm.registry import Registry

ATTACKS: Registry[Callable[..., Tensor]] = Registry("attack")

FROM_CLEAN = frozenset({"bim", "cw", "fab_t", "fgsm"})
"""Attacks that start at the clean image: a restart would repeat them."""
