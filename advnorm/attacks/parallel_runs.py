"""Attempts on the same images that run side by side, as one larger batch.

A pass costs less an image in a larger batch, and what lies between the passes is paid once
for all targets. An attempt never sees another, so nothing but time depends on how many run
together.
"""

import torch
from torch import Tensor

ROWS = 512
"""Rows that run together at most, where there are not more images than that."""


def runs_together(attempts: range, images: int) -> range:
    """Return which of the waiting attempts run together on a number of images.

    The first runs alone: it breaks most images that are broken at all, and spares the
    others the cost.

    >>> runs_together(range(9), images=200), runs_together(range(1, 9), images=200)
    (range(0, 1), range(1, 3))
    """
    return attempts[: max(1, ROWS // max(images, 1)) if attempts.start else 1]


def drop_siblings(owner: Tensor, done: Tensor) -> Tensor:
    """Return the rows whose image has no attempt that is done."""
    return (~torch.isin(owner, owner[done])).nonzero().squeeze(1)
