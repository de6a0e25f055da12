"""The corruptions by name, and how a level of severity becomes a number."""

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from advnorm.draws import Draws
from advnorm.registry import Registry

SEVERITIES = (1, 2, 3, 4, 5)
Corruption = Callable[[Tensor, Draws, int], Tensor]
CORRUPTIONS: Registry[Corruption] = Registry("corruption")
"""Each maps images in [0, 1], their draws and a severity to images, not yet clipped."""

_SMALL_SIDE = 32
_LARGE_SIDE = 96
T = TypeVar("T")


def level(
    images: Tensor, severity: int, small: tuple[T, ...], large: tuple[T, ...] | None = None
) -> T:
    """Return a severity's constant: of small images, or of those from 96 pixels a side."""
    chosen = large if large is not None and _side(images) >= _LARGE_SIDE else small
    return chosen[severity - 1]


def length_scale(images: Tensor) -> float:
    """Return the factor of all lengths in pixels: 1 up to 32 pixels a side, then side / 32.

    Below 32 pixels the lengths stay: a tenth of a pixel would change nothing.
    """
    return max(1.0, _side(images) / _SMALL_SIDE)


def _side(images: Tensor) -> int:
    return min(images.shape[-2:])
