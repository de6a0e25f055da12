"""Weather: snow, frost, fog, brightness and spatter (after Hendrycks & Dietterich, 2019).

Brightness has the constants of CIFAR-10-C and ImageNet-C, fog those of CIFAR-10-C below 96
pixels a side. The textures of the others are ours: frost uses no photographs, spatter is
always water, and each level is stronger than the one before.
"""

from math import ceil, pi

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.data.corruptions.filters import plasma, smear, smooth_noise
from advnorm.data.corruptions.registry import CORRUPTIONS, length_scale, level
from advnorm.draws import Draws

_ICE = (0.85, 0.93, 1.0)
_WATER = (0.69, 0.93, 0.93)


@CORRUPTIONS.register("fog")
def fog(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Fog: blend with a cloud p, (x + c p) m / (m + c), with m the largest value of x."""
    small = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
    large = ((1.5, 2.0), (2.0, 2.0), (2.5, 2.0), (3.0, 2.0), (4.0, 2.0))
    thickness, decay = level(images, severity, small, large)
    most = images.amax((1, 2, 3), keepdim=True)
    cloud = plasma(draws, images, decay=decay)
    return (images + thickness * cloud) * (most / (most + thickness))


@CORRUPTIONS.register("frost")
def frost(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Frost: blend with ice, (1 - b) x + b t, with ridges t between 0.4 and 1."""
    share = level(images, severity, (0.15, 0.25, 0.35, 0.45, 0.55))
    ridges = 1 - (2 * plasma(draws, images, decay=1.75) - 1).abs()
    ice = (0.4 + 0.6 * ridges) * _tint(_ICE, images)
    return (1 - share) * images + share * ice


@CORRUPTIONS.register("snow")
def snow(images: Tensor, draws: Draws, severity: int) -> Tensor:
    r"""Snow: flakes over a whitened image.

    Flakes are where :math:`\mu + s n` is above a threshold, :math:`n \sim N(0, 1)`, smeared
    along a line within 45 degrees of a column, and once more turned by 180 degrees.
    """
    constants = (
        *((0.1, 0.2, 0.6, 2.0, 0.95), (0.1, 0.2, 0.5, 2.5, 0.9)),
        *((0.15, 0.3, 0.55, 2.5, 0.85), (0.25, 0.3, 0.6, 3.0, 0.8)),
        (0.3, 0.3, 0.6, 3.5, 0.7),
    )
    mean, spread, threshold, sigma, kept = level(images, severity, constants)
    factor = length_scale(images)
    size = [ceil(length / factor) for length in images.shape[-2:]]
    noise = draws.stream("flakes").normal(1, *size, dtype=images.dtype)
    noise = F.interpolate(
        noise, size=images.shape[-2:], mode="bilinear", align_corners=True
    )
    flakes = (mean + spread * noise).clamp_(0, 1)
    flakes = torch.where(flakes < threshold, 0.0, flakes)
    turn = draws.stream("angle").uniform(dtype=images.dtype)
    flakes = smear(flakes, (turn - 0.5) * (pi / 2) + pi / 2, sigma * factor)
    white = torch.maximum(images, 1.5 * images.mean(1, keepdim=True) + 0.5)
    return kept * images + (1 - kept) * white + flakes + flakes.flip(-2, -1)


@CORRUPTIONS.register("brightness")
def brightness(images: Tensor, draws: Draws, severity: int) -> Tensor:
    r"""Raise the brightness: the largest channel V grows by c; hue and saturation stay.

    .. math:: x' = x\,V' / V, \quad V' = \min(V + c, 1); \quad x' = V' \text{ where } V = 0
    """
    more = level(images, severity, (0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5))
    value = images.amax(1, keepdim=True)
    brighter = (value + more).clamp_max(1)
    return torch.where(value > 0, images * (brighter / value.clamp_min(1e-12)), brighter)


@CORRUPTIONS.register("spatter")
def spatter(images: Tensor, draws: Draws, severity: int) -> Tensor:
    r"""Spatter: (1 - m) x + m w, drops of water where a smooth field is above a threshold.

    :math:`m = \min(1, \max(0, 2 (z - t)))` with z of variance 1.
    """
    threshold = level(images, severity, (1.6, 1.3, 1.0, 0.75, 0.5))
    field = smooth_noise(draws, images, count=1, sigma=length_scale(images))
    drops = (2 * (field - threshold)).clamp_(0, 1)
    return (1 - drops) * images + drops * _tint(_WATER, images)


def _tint(colour: tuple[float, float, float], images: Tensor) -> Tensor:
    """Return a colour for three channels, its mean for any other number."""
    if images.shape[1] != len(colour):
        return images.new_full((1, 1, 1), sum(colour) / len(colour))
    return images.new_tensor(colour)[:, None, None]
