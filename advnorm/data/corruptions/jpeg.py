"""JPEG compression: the lossy half of the standard (ITU-T T.81), batched."""

from math import cos, pi, sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.data.corruptions.registry import CORRUPTIONS, level
from advnorm.draws import Draws

# T.81, Annex K: quantization steps of luminance and of chrominance at quality 50.
_LUMINANCE = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    *(17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99),
    *[99] * 32,
)
_TO_YCC = (
    (0.299, 0.587, 0.114),
    (-0.168735892, -0.331264108, 0.5),
    (0.5, -0.418687589, -0.081312411),
)


@CORRUPTIONS.register("jpeg_compression")
def jpeg_compression(images: Tensor, draws: Draws, severity: int) -> Tensor:
    """JPEG compression of quality 80 to 40 (from 96 pixels a side: 25 to 7)."""
    quality = level(images, severity, (80, 65, 58, 50, 40), (25, 18, 15, 10, 7))
    return jpeg(images, quality)


def jpeg(images: Tensor, quality: int) -> Tensor:
    """Compress and decompress images in [0, 1], ``(n, C, H, W)``.

    Three channels become luminance and chrominance, the latter at half the resolution
    (4:2:0, interpolated back); each channel of any other image is a luminance.
    """
    levels = (images * 255).round()
    if images.shape[1] != 3:
        planes = levels.flatten(0, 1)[:, None]
        return _quantize(planes, quality, _LUMINANCE).view_as(images) / 255
    matrix = images.new_tensor(_TO_YCC)
    ycc = torch.einsum("yc,nchw->nyhw", matrix, levels)
    ycc[:, 1:] += 128
    colour = F.interpolate(
        _quantize(_halve(ycc[:, 1:]), quality, _CHROMINANCE),
        scale_factor=2,
        mode="bilinear",
        align_corners=False,
    )[..., : images.shape[-2], : images.shape[-1]]
    light = _quantize(ycc[:, :1].round(), quality, _LUMINANCE)
    back = torch.cat([light, colour - 128], 1)
    rgb = torch.einsum("cy,nyhw->nchw", torch.linalg.inv(matrix.double()).to(images), back)
    return rgb.round().clamp(0, 255) / 255


def quantization_steps(table: tuple[int, ...], quality: int, like: Tensor) -> Tensor:
    """Return the 8x8 steps at a quality from 1 to 100, scaled as encoders do."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    scaled = [min(max((step * scale + 50) // 100, 1), 255) for step in table]
    return like.new_tensor(scaled).view(8, 8)


def dct_matrix(like: Tensor) -> Tensor:
    r"""Return the orthonormal DCT-II: :math:`c_u \cos((2x + 1) u \pi / 16) / 2`."""
    rows = [
        [
            (sqrt(0.5) if u == 0 else 1.0) * cos((2 * x + 1) * u * pi / 16) / 2
            for x in range(8)
        ]
        for u in range(8)
    ]
    return like.new_tensor(rows)


def _quantize(planes: Tensor, quality: int, table: tuple[int, ...]) -> Tensor:
    """Round the cosine coefficients of 8x8 blocks to whole steps; levels are 0 to 255."""
    height, width = planes.shape[-2:]
    whole = _pad(planes, 8) - 128
    down, across = (size // 8 for size in whole.shape[-2:])
    blocks = whole.view(*planes.shape[:2], down, 8, across, 8).transpose(3, 4)
    dct, step = dct_matrix(planes), quantization_steps(table, quality, planes)
    kept = (dct @ blocks @ dct.T / step).round() * step
    back = (dct.T @ kept @ dct).transpose(3, 4).reshape(whole.shape) + 128
    return back.round().clamp(0, 255)[..., :height, :width]


def _halve(planes: Tensor) -> Tensor:
    return F.avg_pool2d(_pad(planes, 2), 2).round()


def _pad(planes: Tensor, multiple: int) -> Tensor:
    """Repeat the last row and column up to a multiple."""
    height, width = planes.shape[-2:]
    return F.pad(planes, (0, -width % multiple, 0, -height % multiple), mode="replicate")
