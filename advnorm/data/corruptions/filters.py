"""Filters, resampling and random fields for the corruptions, batched.

Images are extended by their nearest pixel.
"""

from math import ceil, exp, log2

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.draws import Draws


def gaussian(images: Tensor, sigma: float) -> Tensor:
    r"""Convolve with :math:`\exp(-t^2 / 2 \sigma^2)`, of sum 1 and cut at 4 deviations."""
    weights = gaussian_weights(sigma, images)
    return convolve(convolve(images, weights[:, None]), weights[None, :])


def gaussian_weights(sigma: float, like: Tensor) -> Tensor:
    """Return the weights of :func:`gaussian`, an odd number, in the type of ``like``."""
    radius = int(4 * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1, dtype=like.dtype, device=like.device)
    weights = torch.exp(-0.5 * (offsets / sigma).square())
    return weights / weights.sum()


def convolve(images: Tensor, kernel: Tensor) -> Tensor:
    """Apply one symmetric kernel of odd size to every channel of every image."""
    below, beside = (size // 2 for size in kernel.shape)
    planes = images.reshape(-1, 1, *images.shape[-2:])
    padded = F.pad(planes, (beside, beside, below, below), mode="replicate")
    return F.conv2d(padded, kernel[None, None]).view_as(images)


def grid(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row and the column of each pixel, shapes ``(H, 1)`` and ``(1, W)``."""
    height, width = images.shape[-2:]
    rows = torch.arange(height, dtype=images.dtype, device=images.device)
    columns = torch.arange(width, dtype=images.dtype, device=images.device)
    return rows[:, None], columns[None, :]


def resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Read each image at real rows and columns, ``(batch or 1, H, W)``, bilinearly."""
    height, width = images.shape[-2:]
    x = 2 * columns / max(width - 1, 1) - 1
    y = 2 * rows / max(height - 1, 1) - 1
    places = torch.stack([x + 0 * y, y + 0 * x], dim=-1)
    return F.grid_sample(
        images,
        places.expand(len(images), -1, -1, -1),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )


def smear(images: Tensor, angle: Tensor, sigma: float) -> Tensor:
    r"""Smear each image along its own direction, ``angle`` of shape ``(batch,)``.

    .. math::
        x'(p) \propto \sum_{k=0}^{\lceil 3 \sigma \rceil}
        e^{-k^2 / 2 \sigma^2}\, x(p + k\,(\sin\theta, \cos\theta))
    """
    rows, columns = grid(images)
    taps = range(ceil(3 * sigma) + 1)
    weights = [exp(-0.5 * (tap / sigma) ** 2) for tap in taps]
    down, right = angle.sin()[:, None, None], angle.cos()[:, None, None]
    smeared = torch.zeros_like(images)
    for tap, weight in zip(taps, weights, strict=True):
        smeared += weight * resample(images, rows + tap * down, columns + tap * right)
    return smeared / sum(weights)


def smooth_noise(draws: Draws, like: Tensor, *, count: int, sigma: float) -> Tensor:
    """Draw ``count`` fields per image: Gaussian-filtered white noise of variance 1."""
    weights = gaussian_weights(sigma, like)
    weights = weights / weights.square().sum().sqrt()
    height, width = (size + len(weights) - 1 for size in like.shape[-2:])
    noise = draws.normal(count, height, width, dtype=like.dtype).view(-1, 1, height, width)
    smooth = F.conv2d(
        F.conv2d(noise, weights[None, None, :, None]), weights[None, None, None]
    )
    return smooth.view(len(like), count, *like.shape[-2:])


def plasma(draws: Draws, like: Tensor, *, decay: float) -> Tensor:
    r"""Draw a cloud per image, ``(batch, 1, H, W)``, from 0 to 1.

    .. math:: \sum_{o=1}^{\lceil\log_2 \text{side}\rceil} \text{decay}^{-o}\, u_o

    with :math:`u_o` uniform on a lattice of :math:`2^o` cells a side, bilinear between.
    """
    size = like.shape[-2:]
    cloud = like.new_zeros(len(like), 1, *size)
    for octave in range(1, max(1, ceil(log2(max(size)))) + 1):
        points = 2**octave + 1
        drawn = draws.stream(octave).uniform(1, points, points, dtype=like.dtype)
        cloud += decay**-octave * F.interpolate(
            drawn, size=size, mode="bilinear", align_corners=True
        )
    cloud -= cloud.amin((1, 2, 3), keepdim=True)
    return cloud / cloud.amax((1, 2, 3), keepdim=True).clamp_min(1e-12)
