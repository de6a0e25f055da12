"""Noise: Gaussian, shot, impulse and speckle (Hendrycks & Dietterich, 2019).

Constants are those of CIFAR-10-C below 96 pixels a side, else of ImageNet-C. The draws do
not depend on the severity, so a stronger level is more of the same noise.
"""

import torch
from torch import Tensor

from advnorm.data.corruptions.registry import CORRUPTIONS, level
from advnorm.draws import Draws

_SMALL_RATE = 8.0


@CORRUPTIONS.register("gaussian_noise")
def gaussian_noise(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Gaussian noise, as of a sensor in low light: x + σ n, with n standard normal."""
    sigma = level(
        images, severity, (0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38)
    )
    return images + sigma * draws.normal(*images.shape[1:], dtype=images.dtype)


@CORRUPTIONS.register("shot_noise")
def shot_noise(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Shot noise, the counting of photons: Poisson(c x) / c."""
    photons = level(images, severity, (500, 250, 100, 75, 50), (60, 25, 12, 5, 3))
    uniform = draws.uniform(*images.shape[1:], dtype=torch.float64)
    return poisson_quantile(uniform, images.double() * photons).to(images) / photons


@CORRUPTIONS.register("impulse_noise")
def impulse_noise(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Salt and pepper: a fraction of the values becomes 0 or 1 with equal probability."""
    share = level(
        images, severity, (0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27)
    )
    hit = draws.stream("where").uniform(*images.shape[1:]) < share
    salt = draws.stream("salt").uniform(*images.shape[1:]) < 0.5
    return torch.where(hit, salt.to(images), images)


@CORRUPTIONS.register("speckle_noise")
def speckle_noise(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """Speckle noise, in proportion to the value: x + σ x n, with n standard normal."""
    sigma = level(
        images, severity, (0.06, 0.1, 0.12, 0.16, 0.2), (0.15, 0.2, 0.35, 0.45, 0.6)
    )
    return images + sigma * images * draws.normal(*images.shape[1:], dtype=images.dtype)


def poisson_quantile(uniform: Tensor, rate: Tensor) -> Tensor:
    r"""Return the least k with :math:`P(\mathrm{Poisson}(\lambda) \le k) \ge u`, in double.

    Small rates by summing the probabilities, large ones by the incomplete gamma function:
    :math:`P(\cdot \le k) = Q(k + 1, \lambda)`.
    """
    small = _quantile_by_sum(uniform, rate.clamp_max(_SMALL_RATE))
    large = _quantile_by_bisection(uniform, rate.clamp_min(_SMALL_RATE))
    return torch.where(rate > _SMALL_RATE, large, small)


def _quantile_by_sum(uniform: Tensor, rate: Tensor) -> Tensor:
    """Count the k with P(. <= k) < u; at a rate of 8 there are never more than 56."""
    term = torch.exp(-rate)
    total, counted = term.clone(), torch.zeros_like(rate)
    for k in range(1, 57):
        counted += total < uniform
        term *= rate / k
        total += term
    return counted


def _quantile_by_bisection(uniform: Tensor, rate: Tensor) -> Tensor:
    """Bisect around the Cornish-Fisher expansion, at most 3 off from a rate of 8."""
    z: Tensor = torch.special.ndtri(uniform)
    low = (rate + rate.sqrt() * z + (z.square() - 1) / 6).floor_().sub_(4).clamp_min_(-1)
    high = low + 8
    for _ in range(3):
        middle = ((low + high) / 2).floor_()
        enough = torch.special.gammaincc(middle + 1, rate) >= uniform
        high, low = torch.where(enough, middle, high), torch.where(enough, low, middle)
    return high
