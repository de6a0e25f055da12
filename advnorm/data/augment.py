"""Random augmentation of a batch of training images, on its device, keyed by sample.

``draws`` are the streams of the batch's samples, e.g.
``Draws.of(seed, batch.samples).stream("augment", epoch)``, on the device of the images.
What happens to an image depends on its own stream alone, so it is the same in every batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.special import betaincinv
from torch import Tensor
from torch.nn import functional as F

from advnorm.draws import Draws
from advnorm.registry import Registry

Augmentation = Callable[[Tensor, Draws], Tensor]
AUGMENTATIONS: Registry[Augmentation] = Registry("augmentation")
"""Each maps images and the random numbers of their samples to images."""
JITTER = 0.1
"""Largest relative change of :func:`crop_flip_jitter`; sitawarin2021 states none."""


class MixupBatch(NamedTuple):
    """Mixed images and their soft labels, shape ``(batch, classes)``."""

    images: Tensor
    labels: Tensor


@AUGMENTATIONS.register("none")
def none(images: Tensor, draws: Draws) -> Tensor:
    """Leave the images as they are."""
    return images


@AUGMENTATIONS.register("flip")
def flip(images: Tensor, draws: Draws) -> Tensor:
    """Mirror each image left to right with probability 1/2."""
    _check_images(images, "flip")
    mirrored = draws.stream("flip").uniform() < 0.5
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


@AUGMENTATIONS.register("crop")
def crop(images: Tensor, draws: Draws, *, pad: int = 4) -> Tensor:
    """Pad with zeros on all sides and crop each image at a random offset.

    The offsets (rows, columns) are uniform on 0 to ``2 * pad`` (He et al., 2016, sec. 4.2).
    """
    _check_images(images, "crop")
    height, width = images.shape[-2:]
    offsets = crop_offsets(draws, pad=pad)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = offsets[:, 1:] + torch.arange(width, device=images.device)
    padded = F.pad(images, (pad, pad, pad, pad))
    batch = torch.arange(len(images), device=images.device)[:, None, None, None]
    channels = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return padded[batch, channels, rows[:, None, :, None], columns[:, None, None, :]]


def crop_offsets(draws: Draws, *, pad: int) -> Tensor:
    """Return the offsets of :func:`crop`, (row, column), shape ``(batch, 2)``."""
    return draws.stream("crop").integers(2 * pad + 1, 2)


@AUGMENTATIONS.register("crop_flip")
def crop_flip(images: Tensor, draws: Draws) -> Tensor:
    """Crop after padding by 4 pixels, then mirror with probability 1/2."""
    return flip(crop(images, draws), draws)


@AUGMENTATIONS.register("crop_flip_jitter")
def crop_flip_jitter(images: Tensor, draws: Draws) -> Tensor:
    """Crop and mirror, then zoom and brighten by up to 10% (sitawarin2021, appendix B)."""
    changed = crop_flip(images, draws)
    return brighten(zoom(changed, draws), draws)


def zoom(images: Tensor, draws: Draws, *, spread: float = JITTER) -> Tensor:
    r"""Stretch each image about its centre by its own factor, bilinear, zero outside.

    .. math:: x'(p) = x(p / s), \quad s \sim U(1 - a, 1 + a)

    with positions :math:`p` from the centre and ``spread`` a.
    """
    inverse = 1 / jitter_factors(draws.stream("zoom"), spread).to(images)
    matrix = torch.zeros(len(images), 2, 3, dtype=images.dtype, device=images.device)
    matrix[:, 0, 0] = matrix[:, 1, 1] = inverse
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def brighten(images: Tensor, draws: Draws, *, spread: float = JITTER) -> Tensor:
    """Multiply each image in [0, 1] by its own factor, and clip at 1."""
    factor = jitter_factors(draws.stream("brightness"), spread).to(images)
    return (images * factor[:, None, None, None]).clamp_(0, 1)


def jitter_factors(draws: Draws, spread: float) -> Tensor:
    """Return a factor a sample, uniform from ``1 - spread`` to ``1 + spread``."""
    return 1 - spread + 2 * spread * draws.uniform()


def _check_images(images: Tensor, name: str) -> None:
    if images.dim() != 4:
        raise ValueError(
            f"the augmentation {name!r} is for images, not for samples of shape "
            f"{tuple(images.shape[1:])}: set data.augment=none"
        )


def mixup(
    images: Tensor, labels: Tensor, draws: Draws, *, alpha: float, classes: int
) -> MixupBatch:
    r"""Mix each image and its label with a partner's (mixup, Zhang et al., 2018).

    .. math::
        \tilde x_i = \lambda_i x_i + (1 - \lambda_i) x_j, \quad
        \lambda_i \sim \mathrm{Beta}(\alpha, \alpha)

    One :math:`\lambda` a sample, by the inverse of the distribution function at the
    sample's own uniform draw. The partner :math:`j` is the next sample of the batch in the
    order of their keys, the first after the last: it depends on which samples are in the
    batch, not on their order.
    """
    if alpha <= 0:
        raise ValueError(f"mixup needs alpha > 0, not {alpha}: leave mixup out instead")
    order = torch.argsort(draws.stream("partner").keys)
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    share = mixup_weights(draws, alpha=alpha).to(images)
    soft = F.one_hot(labels, classes).to(images)
    lam = share.view(-1, *[1] * (images.dim() - 1))
    mixed = lam * images + (1 - lam) * images[partner]
    return MixupBatch(mixed, share[:, None] * soft + (1 - share[:, None]) * soft[partner])


def smooth_labels(labels: Tensor, *, share: float, classes: int) -> Tensor:
    """Spread a share of each label over all classes (Szegedy et al., 2016), mixed or not.

    >>> smooth_labels(torch.tensor([1]), share=0.5, classes=2).tolist()
    [[0.25, 0.75]]
    """
    soft = labels if labels.is_floating_point() else F.one_hot(labels, classes).float()
    return (1 - share) * soft + share / classes


def mixup_weights(draws: Draws, *, alpha: float) -> Tensor:
    """Return the weight of each sample's own image, ``(batch,)``, in double on the CPU."""
    uniform = draws.stream("mixup").uniform(dtype=torch.float64).cpu().numpy()
    return torch.as_tensor(betaincinv(alpha, alpha, uniform))
