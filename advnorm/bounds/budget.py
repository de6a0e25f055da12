"""How much memory bounds may take at a time: images and rows are split to fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

MEGABYTES = 256.0
"""Default of ``memory``."""
_TENSORS = 16
"""Tensors of the size of the largest one that a pass keeps at a time, at most."""
_LIMIT: ContextVar[float] = ContextVar("memory", default=MEGABYTES)


@contextmanager
def limited(memory: float) -> Iterator[None]:
    """Split what is computed so that it takes about ``memory`` megabytes (2**20 bytes)."""
    if not memory > 0:
        raise ValueError(f"memory is a number of megabytes above 0, not {memory!r}")
    before = _LIMIT.set(memory)
    try:
        yield
    finally:
        _LIMIT.reset(before)


def fitting(entries: int, like: Tensor) -> int:
    """Return how many times so many entries of a type fit into a tensor; at least once."""
    most = _LIMIT.get() * 2**20 / (_TENSORS * max(4, like.element_size()))
    return max(1, int(most / max(1, entries)))
