"""Tensors as pictures of a record."""

from torch import Tensor

from advnorm.records import Picture


def picture(
    label: str, image: Tensor, *, signed: bool = False, stretched: bool = False
) -> Picture:
    """Return a picture of ``(height, width)`` or ``(channels, height, width)``.

    A vector becomes one row; of other than 1 or 3 channels the mean is shown.
    """
    image = image.detach().double()
    image = image.view(1, 1, -1) if image.ndim == 1 else image
    image = image[None] if image.ndim == 2 else image
    image = image if len(image) in (1, 3) else image.mean(0, keepdim=True)
    channels = tuple(tuple(map(tuple, channel)) for channel in image.tolist())
    return Picture(label=label, channels=channels, signed=signed, stretched=stretched)
