"""Keeps freed memory for the next feature map, in place of returning it to the system."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import inf

import torch
from torch import Tensor

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""What glibc's ``mallopt`` calls them in ``malloc.h``."""
_DEFAULT_MMAP_MAX = 65536
"""glibc's default of M_MMAP_MAX: the number of blocks that it maps one by one."""
_TRIMMED_FROM = 2**27
"""Free bytes from which they go back: a few calls in a row would ask for less again."""
_depth = 0


def keep_freed_memory(where: Tensor | None = None) -> None:
    """Have the C library keep what is freed for the next feature map, on a CPU.

    glibc hands large blocks back to the system, and each map then costs its page faults
    again; "large" is what exceeds the largest block freed so far. A block of just under
    32 MB, its upper limit, is asked for and freed without being touched.
    """
    if _on_cpu(where):
        torch.empty(2**25 - 2**16, dtype=torch.uint8)


@contextmanager
def freed_memory_kept(where: Tensor | None = None) -> Iterator[None]:
    """Keep freed blocks of any size for as long as a block of code runs, on a CPU.

    A feature map of 128 images of 32x32 with 64 channels has 34 MB, and beyond 32 MB
    :func:`keep_freed_memory` is of no use. At the end what is free goes back to the system,
    unless it is so little that the next call would only ask for it again.
    Other C libraries than glibc are left alone, and so is one whose user has set it.
    """
    global _depth
    libc = _glibc() if _on_cpu(where) else None
    if libc is None:
        yield
        return
    if not _depth:
        keep_freed_memory()  # or the limit would stay where it is now, for good
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, -1)
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            libc.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
            libc.mallopt(_TRIM_THRESHOLD, _TRIMMED_FROM)
            if _free_bytes(libc) > _TRIMMED_FROM:
                libc.malloc_trim(0)


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of ``malloc.h``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _free_bytes(libc: ctypes.CDLL) -> float:
    """Return the free bytes that the C library holds; infinity if it does not tell."""
    mallinfo = getattr(libc, "mallinfo2", None)  # since glibc 2.33
    if mallinfo is None:
        return inf
    mallinfo.restype = _MallocInfo
    return float(mallinfo().fordblks)


def _on_cpu(where: Tensor | None) -> bool:
    return where is None or where.device.type == "cpu"


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc and at its defaults."""
    tuned = os.environ.get("GLIBC_TUNABLES", "")
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in tuned
    if chosen or platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL(None)
