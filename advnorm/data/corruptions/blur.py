"""Blur: Gaussian, defocus, glass, motion and zoom (Hendrycks & Dietterich, 2019).

Constants: of CIFAR-10-C for 32 pixels a side, except those of glass, and of motion,
whose third and fourth level differ only in how far a vanishing tail reaches. Lengths grow
with the image beyond 32 pixels, which at 224 gives about those of ImageNet-C.
"""

from math import pi

import torch
from torch import Tensor

from advnorm.data.corruptions.filters import (
    convolve,
    gaussian,
    gaussian_weights,
    grid,
    resample,
    smear,
)
from advnorm.data.corruptions.registry import CORRUPTIONS, length_scale, level
from advnorm.draws import Draws

_ZOOMS = 11
_MOVED = ((0.25, 1), (0.5, 1), (0.75, 1), (1.0, 1), (1.0, 2))


@CORRUPTIONS.register("gaussian_blur")
def gaussian_blur(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Blur by a Gaussian of 0.4 to 1 pixels."""
    sigma = level(images, severity, (0.4, 0.6, 0.7, 0.8, 1.0))
    return gaussian(images, sigma * length_scale(images))


@CORRUPTIONS.register("defocus_blur")
def defocus_blur(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Put the lens out of focus: means over a disc whose edge a Gaussian softens."""
    constants = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
    radius, soft = level(images, severity, constants)
    return convolve(images, disc(radius * length_scale(images), soft, images))


def disc(radius: float, soft: float, like: Tensor) -> Tensor:
    """Return the kernel of a disc under a Gaussian of deviation ``soft``, of sum 1."""
    reach = int(radius) + int(4 * soft + 0.5)
    offsets = torch.arange(-reach, reach + 1, dtype=like.dtype, device=like.device)
    inside = (offsets.square()[:, None] + offsets.square()) <= radius**2
    weights = gaussian_weights(soft, like)
    around = (len(weights) // 2,) * 4
    sharp = torch.nn.functional.pad(inside.to(like), around)
    soft_edge = torch.nn.functional.conv2d(
        sharp[None, None], (weights[:, None] * weights)[None, None]
    )[0, 0]
    return soft_edge / soft_edge.sum()


@CORRUPTIONS.register("glass_blur")
def glass_blur(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Look through frosted glass: pixels from random near places, between two Gaussians.

    Hendrycks & Dietterich swap pixels one after the other; here all are read at once, so
    that a pixel may show at two places. Near is within 1 pixel. A quarter, half, three
    quarters or all of the pixels are moved, at the last level twice, by levels of our own:
    the published ones differ mostly in the Gaussian, which takes back what was moved.
    """
    (share, times), factor = level(images, severity, _MOVED), length_scale(images)
    seen, reach, size = gaussian(images, 0.25 * factor), round(factor), images.shape[-2:]
    for time in range(times):
        stream = draws.stream(time)
        moved = stream.stream("way").integers(2 * reach + 1, 2, *size) - reach
        chosen = stream.stream("which").uniform(1, *size) < share
        seen = displaced(seen, moved * chosen)
    return gaussian(seen, 0.25 * factor)


def displaced(images: Tensor, moved: Tensor) -> Tensor:
    """Read each pixel from ``moved`` rows and columns, ``(batch, 2, H, W)``, further on."""
    height, width = images.shape[-2:]
    rows, columns = (place.long() for place in grid(images))
    row = (rows + moved[:, 0]).clamp_(0, height - 1)
    column = (columns + moved[:, 1]).clamp_(0, width - 1)
    places = (row * width + column).flatten(1)[:, None].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, places).view_as(images)


@CORRUPTIONS.register("motion_blur")
def motion_blur(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Move the camera: half a Gaussian along a line within 45 degrees of a row."""
    sigma = level(images, severity, (1.0, 1.5, 2.0, 2.5, 3.0))
    angle = (draws.uniform(dtype=images.dtype) - 0.5) * (pi / 2)
    return smear(images, angle, sigma * length_scale(images))


@CORRUPTIONS.register("zoom_blur")
def zoom_blur(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Come closer: the mean of the image and of 11 zooms about its centre."""
    nearest = level(images, severity, (1.05, 1.10, 1.15, 1.20, 1.25))
    rows, columns = grid(images)
    middle, centre = rows.mean(), columns.mean()
    total = images.clone()
    for step in range(_ZOOMS):
        zoom = 1 + (nearest - 1) * step / (_ZOOMS - 1)
        total += resample(
            images,
            (middle + (rows - middle) / zoom)[None],
            (centre + (columns - centre) / zoom)[None],
        )
    return total / (_ZOOMS + 1)
