"""Full-precision products while a certificate is computed: no TF32, no bfloat16.

Torch may compute products of float32 numbers in TF32 (on a GPU convolutions do so by
default) or in bfloat16 (``torch.set_float32_matmul_precision``, autocast). A verdict
subtracts what rounding in float32 may cost, which is far less.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Compute products in the precision of their inputs; autocast is refused."""
    if torch.is_autocast_enabled(device.type):
        raise ValueError(
            "certificates need the model's own precision: leave autocast before"
        )
    kinds: Any = torch.backends
    wide = kinds, kinds.cudnn, kinds.mkldnn
    narrow = kinds.cudnn.conv, kinds.cudnn.rnn, kinds.cuda.matmul
    with ExitStack() as before:
        for setting in wide:  # the widest first: a narrow one may show what it inherits
            before.callback(setattr, setting, "fp32_precision", setting.fp32_precision)
            setting.fp32_precision = "none"
        for setting in (*narrow, kinds.mkldnn.conv, kinds.mkldnn.matmul):
            before.callback(setattr, setting, "fp32_precision", setting.fp32_precision)
        _cut_products(before, kinds)
        _cut_convolutions(before, kinds)
        yield


def _cut_products(before: ExitStack, kinds: Any) -> None:
    """Set products by torch's older setting, which has to agree with the newer ones."""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer ones were set, and the older one tells nothing
        kinds.cuda.matmul.fp32_precision = kinds.mkldnn.matmul.fp32_precision = "ieee"
        return
    before.callback(torch.set_float32_matmul_precision, precision)
    torch.set_float32_matmul_precision("highest")


def _cut_convolutions(before: ExitStack, kinds: Any) -> None:
    """Do the same with convolutions, and with recurrent layers, which share a setting."""
    kinds.mkldnn.conv.fp32_precision = "ieee"
    try:
        allowed = kinds.cudnn.allow_tf32
    except RuntimeError:
        kinds.cudnn.conv.fp32_precision = kinds.cudnn.rnn.fp32_precision = "ieee"
        return
    before.callback(setattr, kinds.cudnn, "allow_tf32", allowed)
    kinds.cudnn.allow_tf32 = False
