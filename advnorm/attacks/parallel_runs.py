"""Several attempts on the same images, run side by side as one larger batch.

A larger batch costs less per image. Attempts do not influence each other, so how many run
together changes the time and nothing else.
"""

import torch
from torch import Tensor

ROWS = 512
"""Rows that run together at most, where there are not more images than that."""


def runs_together(attempts: range, images: int) -> range:
    """Return which of the waiting attempts run together on a number of images.

    The first runs alone: it breaks most of the images that any attempt breaks, and these
    need no other attempt.

    >>> runs_together(range(9), images=200), runs_together(range(1, 9), images=200)
    (range(0, 1), range(1, 3))
    """
    return attempts[: max(1, ROWS // max(images, 1)) if attempts.start else 1]


def drop_siblings(owner: Tensor, done: Tensor) -> Tensor:
    """Return the rows of images none of whose attempts is done."""
    return (~torch.isin(owner, owner[done])).nonzero().squeeze(1)
