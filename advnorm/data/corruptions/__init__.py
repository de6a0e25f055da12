"""Common corruptions at five severities, for any images (Hendrycks & Dietterich, 2019).

Batched versions of the four families, after the definitions of ImageNet-C and CIFAR-10-C.
Every random number is keyed by sample, so that no image depends on its batch. Lengths are
those of CIFAR-10-C up to 32 pixels a side, and grow with the image beyond.
"""

import torch
from torch import Tensor

# Each enters its names into CORRUPTIONS.
from advnorm.data.corruptions import blur as _blur  # noqa: F401
from advnorm.data.corruptions import digital as _digital  # noqa: F401
from advnorm.data.corruptions import jpeg as _jpeg  # noqa: F401
from advnorm.data.corruptions import noise as _noise  # noqa: F401
from advnorm.data.corruptions import weather as _weather  # noqa: F401
from advnorm.data.corruptions.registry import CORRUPTIONS, SEVERITIES, Corruption
from advnorm.draws import Draws

COLOUR_ONLY = frozenset({"saturate"})
"""The corruptions that need images of three channels."""

__all__ = ["COLOUR_ONLY", "CORRUPTIONS", "SEVERITIES", "Corruption", "corrupt"]


def corrupt(
    images: Tensor,
    draws: Draws,
    *,
    name: str,
    severity: int,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Tensor:
    """Return corrupted images of the same shape and type, in ``bounds``.

    >>> images = torch.rand(2, 1, 8, 8)
    >>> draws = Draws.of(0, torch.arange(2))
    >>> corrupt(images, draws, name="fog", severity=3).shape
    torch.Size([2, 1, 8, 8])

    Args:
        images: Floats in ``bounds``, shape ``(n, C, H, W)``; a corruption is defined on
            [0, 1], and other bounds are scaled to that and back.
        draws: The streams of the samples, on the device of the images.
        name: One of :data:`CORRUPTIONS`.
        severity: 1 to 5.
        bounds: The smallest and largest value of a valid image.
    """
    corruption, (low, high) = CORRUPTIONS[name], bounds
    if severity not in SEVERITIES:
        raise ValueError(f"no severity {severity!r}: give 1 to 5")
    if images.dim() != 4:
        raise ValueError(
            f"the corruption {name!r} is for images, not for samples of shape "
            f"{tuple(images.shape[1:])}: leave it out"
        )
    with torch.no_grad():
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        unit = (wide - low) / (high - low)
        corrupted = corruption(unit, draws.stream("corruption", name), severity)
        return (
            (low + (high - low) * corrupted.clamp(0, 1)).clamp_(low, high).to(images.dtype)
        )
