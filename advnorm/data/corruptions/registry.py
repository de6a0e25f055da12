"""The corruptions by name, and the constants of a severity."""

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from advnorm.draws import Draws
from advnorm.registry import Registry

SEVERITIES = (1, 2, 3, 4, 5)
Corruption = Callable[[Tensor, Draws, int], Tensor]
CORRUPTIONS: Registry[Corruption] = Registry("corruption")
"""Each maps images in [0, 1], their draws and a severity to unclipped images."""

_SMALL_SIDE = 32
_LARGE_SIDE = 96
T = TypeVar("T")


def level(
    images: Tensor, severity: int, small: tuple[T, ...], large: tuple[T, ...] | None = None
) -> T:
    """Return the constant of a severity; ``large`` is for images from 96 pixels a side."""
    constants = large if large is not None and _side(images) >= _LARGE_SIDE else small
    return constants[severity - 1]


def length_scale(images: Tensor) -> float:
    """Return the factor of all lengths in pixels: 1 up to 32 pixels a side, then side / 32.

    Smaller images keep the lengths: a tenth of a pixel would change nothing.
    """
    return max(1.0, _side(images) / _SMALL_SIDE)


def _side(images: Tensor) -> int:
    return min(images.shape[-2:])
