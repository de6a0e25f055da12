"""Whose statistics a normalization layer uses, and whether a pass moves them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

Mode = Literal["train", "batch", "running"]

# mode: (normalize with batch statistics, keep running statistics up to date)
_FLAGS: dict[Mode, tuple[bool, bool]] = {
    "train": (True, True),
    "batch": (True, False),
    "running": (False, True),
}


@contextmanager
def mode(model: nn.Module, name: Mode) -> Iterator[None]:
    """Run the batch-norm layers of ``model`` in one mode, then put each back as it was.

    - ``"train"``: normalize with batch statistics and update the running ones.
    - ``"batch"``: normalize with batch statistics, leave the running ones alone.
    - ``"running"``: normalize with the running statistics.

    Layers are restored one by one, also on error, so a layer frozen by the caller is still
    frozen afterwards. Layers that keep no running statistics always use the batch's.
    """
    if name not in _FLAGS:
        raise ValueError(f"no mode {name!r}; there are: {', '.join(_FLAGS)}")
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    before = [(m.training, m.track_running_stats) for m in layers]
    try:
        for layer in layers:
            training, track = _FLAGS[name]
            layer.training = training
            layer.track_running_stats = track and layer.running_mean is not None
        yield
    finally:
        for layer, (training, track) in zip(layers, before, strict=True):
            layer.training, layer.track_running_stats = training, track
