"""Products in the precision of their numbers, while a certificate is made.

Torch may compute products of float32 numbers in TF32 (on a GPU convolutions do so by
default) or in bfloat16 (``torch.set_float32_matmul_precision``, autocast). A verdict
subtracts what rounding in float32 may cost, which is far less.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_EXACT = "ieee"


def _settings() -> tuple[Any, ...]:
    kinds: Any = torch.backends
    return kinds.cudnn.conv, kinds.cuda.matmul, kinds.mkldnn.conv, kinds.mkldnn.matmul


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """While entered, no product is rounded more than its numbers; autocast is refused."""
    if torch.is_autocast_enabled(device.type):
        raise ValueError(
            "certificates are of a model in its own precision: leave autocast before"
        )
    before = [(setting, setting.fp32_precision) for setting in _settings()]
    try:
        for setting, _ in before:
            setting.fp32_precision = _EXACT
        yield
    finally:
        for setting, precision in before:
            setting.fp32_precision = precision
