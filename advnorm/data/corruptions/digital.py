"""Digital: contrast, elastic, pixelate, saturate (after Hendrycks & Dietterich, 2019).

Contrast has the constants of CIFAR-10-C and ImageNet-C. The levels of the others are ours:
the published ones do not grow steadily.
"""

import torch
from torch import Tensor

from advnorm.data.corruptions.filters import grid, resample, smooth_noise
from advnorm.data.corruptions.registry import CORRUPTIONS, length_scale, level
from advnorm.draws import Draws


@CORRUPTIONS.register("contrast")
def contrast(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Lower the contrast: μ + c (x - μ), with the mean μ of each image's channel."""
    factor = level(
        images, severity, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)
    )
    mean = images.mean((-2, -1), keepdim=True)
    return mean + factor * (images - mean)


@CORRUPTIONS.register("elastic_transform")
def elastic_transform(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Elastic deformation: each pixel is read at a smooth random offset.

    Offsets have a deviation of 0.4 to 1.2 pixels a direction, smooth over 2 pixels.
    """
    deviation = level(images, severity, (0.4, 0.6, 0.8, 1.0, 1.2)) * length_scale(images)
    offset = deviation * smooth_noise(
        draws, images, count=2, sigma=2 * length_scale(images)
    )
    rows, columns = grid(images)
    return resample(images, rows + offset[:, 0], columns + offset[:, 1])


@CORRUPTIONS.register("pixelate")
def pixelate(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Lower the resolution: means over boxes, shown as boxes.

    The resolution is 0.9 to 0.4 of the side (published for CIFAR-10-C: 0.95 to 0.65, whose
    steps are within rounding of each other on small images), from 96 pixels 0.6 to 0.25;
    each level has at least one row of pixels less than the one before.
    """
    small, large = (0.9, 0.8, 0.65, 0.55, 0.4), (0.6, 0.45, 0.35, 0.3, 0.25)
    shares = [level(images, s, small, large) for s in range(1, severity + 1)]
    down, across = (
        box_matrix(size, _box_count(size, shares)) for size in images.shape[-2:]
    )
    return down.to(images) @ images @ across.to(images).T


def _box_count(size: int, shares: list[float]) -> int:
    count = size
    for share in shares:
        count = min(int(size * share), count - 1)
    return max(count, 1)


def box_matrix(size: int, count: int) -> Tensor:
    """Return the matrix that averages ``size`` pixels over ``count`` boxes and back.

    A box has the mean of its interval, a pixel the mean of the boxes over it, by length.
    """
    edges = torch.arange(count + 1, dtype=torch.float64) * size / count
    pixels = torch.arange(size, dtype=torch.float64)
    ends = torch.minimum(edges[1:, None], pixels + 1)
    starts = torch.maximum(edges[:-1, None], pixels)
    overlap = (ends - starts).clamp_min_(0)
    return overlap.T @ (overlap * count / size)


@CORRUPTIONS.register("saturate")
def saturate(images: Tensor, draws: Draws, severity: int) -> Tensor:
    r"""Lower the colour saturation of half of the images, and raise it for the others.

    .. math:: x' = V - (V - x)\,S' / S, \quad S' = \min(c\,S, 1), \quad S = 1 - \min_c x / V

    with V the largest channel, and c = 1 - d or 1 + 2 d, d from 0.3 to 1. Published levels
    go up and down: c = 0.3, 0.1, 1.5, 2, 2.5. For images of three channels.
    """
    if images.shape[1] != 3:
        raise ValueError(
            f"the corruption 'saturate' is for colour images, not for images of "
            f"{images.shape[1]} channel(s): leave it out"
        )
    change = level(images, severity, (0.3, 0.5, 0.7, 0.85, 1.0))
    pale = draws.uniform(1, 1, 1) < 0.5
    factor = 1 + change * (2 - 3 * pale.to(images))
    value = images.amax(1, keepdim=True)
    saturation = 1 - images.amin(1, keepdim=True) / value.clamp_min(1e-12)
    factor = torch.minimum(factor, 1 / saturation.clamp_min(1e-12))
    return value - (value - images) * factor
