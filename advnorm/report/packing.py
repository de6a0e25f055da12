"""Whole numbers as text of few characters, which ``packing.js`` reads."""

from base64 import b64encode
from typing import TypedDict

import numpy as np

from advnorm.report.verdict_arrays import IntArray


class PackedNumbers(TypedDict):
    """Numbers of ``width`` bits each, the most significant bit first, in base64."""

    width: int
    count: int
    data: str


def pack(numbers: IntArray) -> PackedNumbers:
    """Pack numbers that are not negative, with as few bits each as the largest needs.

    >>> pack(np.array([1, 2, 3]))  # 01 10 11 00
    {'width': 2, 'count': 3, 'data': 'bA=='}
    """
    width = max(1, int(numbers.max(initial=0)).bit_length())
    shifts = np.arange(width - 1, -1, -1)
    bits = (numbers[:, None] >> shifts) & 1
    packed = np.packbits(bits.astype(np.uint8).ravel())
    return PackedNumbers(
        width=width, count=len(numbers), data=b64encode(packed.tobytes()).decode()
    )
