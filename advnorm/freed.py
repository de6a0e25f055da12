"""Freed memory that the next feature map takes over."""

import torch
from torch import Tensor


def keep_freed_memory(where: Tensor | None = None) -> None:
    """Have the C library keep what is freed for the next feature map, on a CPU.

    glibc hands large blocks back to the system, and each map then costs its page faults
    again; "large" is what exceeds the largest block freed so far. A block of just under
    32 MB, its upper limit, is asked for and freed without being touched.
    """
    if where is None or where.device.type == "cpu":
        torch.empty(2**25 - 2**16, dtype=torch.uint8)
