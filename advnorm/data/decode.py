"""Decode one image file: which crop of it, and at which size."""

import io
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from advnorm.data.blob import Blob
from advnorm.draws import Draws

CENTER = 7 / 8
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
MAX_SCANNED = 1 << 30
"""Pixels of a JPEG times the scans over them in its file."""
_GREY = ("1", "L", "LA")
_SCAN = b"\xff\xda"


class CropBox(NamedTuple):
    """A rectangle of an image, in pixels from its upper left corner."""

    left: float
    top: float
    right: float
    bottom: float


def center_crop_box(width: int, height: int) -> CropBox:
    """Return the central square with 7/8 of the shorter side (224 of 256)."""
    side = CENTER * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return CropBox(left, top, left + side, top + side)


def crop_draws(draws: Draws) -> Tensor:
    """Return what :func:`random_crop_box` needs, ``(batch, attempts, 4)``."""
    return draws.stream("resized crop").uniform(ATTEMPTS, 4, dtype=torch.float64)


def random_crop_box(width: int, height: int, uniform: Tensor) -> CropBox:
    """Return a crop of random area and aspect ratio (Szegedy et al., 2015, section 6).

    8% to 100% of the area, width over height from 3/4 to 4/3 (uniform in the logarithm), at
    a random place. ``uniform`` has shape ``(attempts, 4)``: area, ratio, left, top. The
    first attempt that fits is taken, else the central square.
    """
    for area, shape, left, top in uniform.tolist():
        pixels = (SCALE[0] + area * (SCALE[1] - SCALE[0])) * width * height
        ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** shape
        w, h = (pixels * ratio) ** 0.5, (pixels / ratio) ** 0.5
        if w <= width and h <= height:
            x, y = left * (width - w), top * (height - h)
            return CropBox(x, y, min(x + w, width), min(y + h, height))
    return center_crop_box(width, height)


def decode(blob: Blob, uniform: Tensor | None, *, channels: int, size: int) -> NDArray[Any]:
    """Decode a JPEG or PNG to uint8 of shape ``(channels, size, size)``.

    An image of that size is only decoded. Of any other, a crop is resized: a random one
    where there are ``uniform`` draws (see :func:`random_crop_box`), else the centre.
    """
    image = _open(blob).convert("L" if channels == 1 else "RGB")
    if image.size != (size, size):
        box = (
            center_crop_box(*image.size)
            if uniform is None
            else random_crop_box(*image.size, uniform)
        )
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    pixels = np.asarray(image)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def probe(blob: Blob) -> tuple[int, int]:
    """Return the channels (1 or 3) of an image and the length of its shorter side."""
    image = _open(blob)
    return 1 if image.mode in _GREY else 3, min(image.size)


def _open(blob: Blob) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(blob.data), formats=("JPEG", "PNG"))
        _check_scans(image, blob.data)
        image.load()
    except Exception as error:  # decoders raise many kinds of errors on damaged bytes
        kind = "" if str(error) else type(error).__name__
        raise blob.error(f"is no readable JPEG or PNG ({error}{kind})") from None
    if image.mode.startswith(("I", "F")):
        raise blob.error(f"has more than 8 bits a value (mode {image.mode})")
    return image


def _check_scans(image: Image.Image, data: bytes) -> None:
    """Refuse a progressive JPEG with too many scans over its pixels.

    A scan of a few bytes may cover millions of pixels; an ordinary image has about ten.
    """
    scans = data.count(_SCAN) if image.format != "PNG" else 1
    if scans * image.width * image.height > MAX_SCANNED:
        raise ValueError(f"{scans} scans of {image.width} x {image.height} pixels")
