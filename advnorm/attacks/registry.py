"""The attacks by name."""

from collections.abc import Callable

from torch import Tensor

from advnorm.attacks.losses import dlr_reason, targeted_dlr_reason
from advnorm.registry import Registry

ATTACKS: Registry[Callable[..., Tensor]] = Registry("attack")

FROM_CLEAN = frozenset({"bim", "cw", "fab_t", "fgsm"})
"""Attacks that start at the clean image: a restart would repeat them."""

FALLBACKS: dict[str, Callable[[int], str | None]] = {
    "apgd_dlr": dlr_reason,
    "apgd_t": targeted_dlr_reason,
}
"""Attacks that do something else with few classes: classes -> the reason, if they do."""
