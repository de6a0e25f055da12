"""Random zooms and brightness of training images (sitawarin2021, appendix B)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.data.augment import AUGMENTATIONS, crop_flip
from advnorm.draws import Draws

SPREAD = 0.1
"""Largest relative change; sitawarin2021 states none."""


@AUGMENTATIONS.register("crop_flip_jitter")
def crop_flip_jitter(images: Tensor, draws: Draws) -> Tensor:
    """Crop and mirror, then zoom and brighten each by up to a tenth."""
    changed = crop_flip(images, draws)
    return brighten(zoom(changed, draws), draws)


def zoom(images: Tensor, draws: Draws, *, spread: float = SPREAD) -> Tensor:
    r"""Stretch each image about its centre by its own factor, bilinear, zero outside.

    .. math:: x'(p) = x(p / s), \quad s \sim U(1 - a, 1 + a)

    with positions :math:`p` from the centre and ``spread`` a.
    """
    inverse = 1 / factors(draws.stream("zoom"), spread).to(images)
    matrix = torch.zeros(len(images), 2, 3, dtype=images.dtype, device=images.device)
    matrix[:, 0, 0] = matrix[:, 1, 1] = inverse
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def brighten(images: Tensor, draws: Draws, *, spread: float = SPREAD) -> Tensor:
    """Multiply each image in [0, 1] by its own factor, and cut what is above 1."""
    factor = factors(draws.stream("brightness"), spread).to(images)
    return (images * factor[:, None, None, None]).clamp_(0, 1)


def factors(draws: Draws, spread: float) -> Tensor:
    """Return a factor a sample, uniform from ``1 - spread`` to ``1 + spread``."""
    return 1 - spread + 2 * spread * draws.uniform()
