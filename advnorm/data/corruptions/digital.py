"""Digital: contrast, elastic, pixelate, saturate (after Hendrycks & Dietterich, 2019).

Contrast has the constants of CIFAR-10-C and ImageNet-C; the others have levels of our own,
since the published ones are not each stronger than the last.
"""

import torch
from torch import Tensor

from advnorm.data.corruptions.filters import grid, resample, smooth_noise
from advnorm.data.corruptions.registry import CORRUPTIONS, length_scale, level
from advnorm.draws import Draws


@CORRUPTIONS.register("contrast")
def contrast(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Take contrast: μ + c (x - μ), with the mean μ of each image's channel."""
    factor = level(
        images, severity, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)
    )
    mean = images.mean((-2, -1), keepdim=True)
    return mean + factor * (images - mean)


@CORRUPTIONS.register("elastic_transform")
def elastic_transform(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Stretch like rubber: each pixel is read a smooth random way off.

    The way has a deviation of 0.4 to 1.2 pixels a direction, and is smooth over 2 pixels.
    """
    far = level(images, severity, (0.4, 0.6, 0.8, 1.0, 1.2)) * length_scale(images)
    way = far * smooth_noise(draws, images, count=2, sigma=2 * length_scale(images))
    rows, columns = grid(images)
    return resample(images, rows + way[:, 0], columns + way[:, 1])


@CORRUPTIONS.register("pixelate")
def pixelate(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Leave fewer pixels: means over boxes, shown as boxes.

    The share of the side that is left is 0.9 to 0.4 (published for CIFAR-10-C: 0.95 to
    0.65, whose steps are within rounding of each other on small images), from 96 pixels
    0.6 to 0.25; each level has at least one row of pixels less than the one before.
    """
    small, large = (0.9, 0.8, 0.65, 0.55, 0.4), (0.6, 0.45, 0.35, 0.3, 0.25)
    down, across = (
        boxes(
            size,
            _left(size, [level(images, s, small, large) for s in range(1, severity + 1)]),
        )
        for size in images.shape[-2:]
    )
    return down.to(images) @ images @ across.to(images).T


def _left(size: int, shares: list[float]) -> int:
    left = size
    for share in shares:
        left = min(int(size * share), left - 1)
    return max(left, 1)


def boxes(size: int, left: int) -> Tensor:
    """Return the matrix that averages ``size`` pixels over ``left`` boxes and shows these.

    A box has the mean of its interval, a pixel the mean of the boxes over it, by length.
    """
    edges = torch.arange(left + 1, dtype=torch.float64) * size / left
    pixels = torch.arange(size, dtype=torch.float64)
    ends = torch.minimum(edges[1:, None], pixels + 1)
    starts = torch.maximum(edges[:-1, None], pixels)
    overlap = (ends - starts).clamp_min_(0)
    return overlap.T @ (overlap * left / size)


@CORRUPTIONS.register("saturate")
def saturate(images: Tensor, draws: Draws, severity: int) -> Tensor:
    r"""Make colours too pale in half of the images, too strong in the others.

    .. math:: x' = V - (V - x)\,S' / S, \quad S' = \min(c\,S, 1), \quad S = 1 - \min_c x / V

    with V the largest channel, and c = 1 - d or 1 + 2 d, d from 0.3 to 1. Published levels
    go up and down: c = 0.3, 0.1, 1.5, 2, 2.5. For images of three channels.
    """
    if images.shape[1] != 3:
        raise ValueError(
            f"the corruption 'saturate' is for colours, not for images of "
            f"{images.shape[1]} channel(s): leave it out"
        )
    change = level(images, severity, (0.3, 0.5, 0.7, 0.85, 1.0))
    pale = draws.uniform(1, 1, 1) < 0.5
    factor = 1 + change * (2 - 3 * pale.to(images))
    value = images.amax(1, keepdim=True)
    saturation = 1 - images.amin(1, keepdim=True) / value.clamp_min(1e-12)
    factor = torch.minimum(factor, 1 / saturation.clamp_min(1e-12))
    return value - (value - images) * factor
