"""Whose statistics a normalization layer uses, and whether a pass moves them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.norms.scope import exclusive

Mode = Literal["train", "batch", "running"]

# mode: (normalize with batch statistics, keep running statistics up to date)
_FLAGS: dict[Mode, tuple[bool, bool]] = {
    "train": (True, True),
    "batch": (True, False),
    "running": (False, True),
}
_FROZEN = "_statistics_frozen"
_KEPT = "_statistics_kept"


@contextmanager
def mode(model: nn.Module, name: Mode) -> Iterator[None]:
    """Run the batch-norm layers of ``model`` in one mode, then put each back as it was.

    - ``"train"``: normalize with batch statistics and update the running ones.
    - ``"batch"``: normalize with batch statistics, leave the running ones alone.
    - ``"running"``: normalize with the running statistics.

    Layers are restored one by one, also on error, so a layer frozen by the caller is still
    frozen afterwards. Layers that keep no running statistics always use the batch's; inside
    :func:`freeze_statistics` the others always use the running ones, and inside
    :func:`keep_statistics` ``"train"`` is ``"batch"``.
    """
    if name not in _FLAGS:
        raise ValueError(f"no mode {name!r}; there are: {', '.join(_FLAGS)}")
    with exclusive(model):
        layers = batch_norms(model)
        before = [(layer.training, layer.track_running_stats) for layer in layers]
        try:
            for layer in layers:
                training, track = _FLAGS[_mode_of(layer, name)]
                layer.training = training
                layer.track_running_stats = track and layer.running_mean is not None
            yield
        finally:
            for layer, (training, track) in zip(layers, before, strict=True):
                layer.training, layer.track_running_stats = training, track


@contextmanager
def freeze_statistics(model: nn.Module) -> Iterator[None]:
    """Train with the running statistics and leave them alone (xie2020, section 4.3).

    Within it every mode is ``"running"``: training and testing then normalize alike. The
    paper does so in the last 10 epochs.
    """
    with exclusive(model):
        layers = [layer for layer in batch_norms(model) if not is_frozen(layer)]
        before = [layer.training for layer in layers]
        try:
            for layer in layers:
                setattr(layer, _FROZEN, True)
                layer.training = False
            yield
        finally:
            for layer, training in zip(layers, before, strict=True):
                delattr(layer, _FROZEN)
                layer.training = training


@contextmanager
def keep_statistics(model: nn.Module) -> Iterator[None]:
    """Let no pass move the running statistics, whatever mode it asks for.

    For the second pass of a step (SAM, APART): its batch statistics are used and dropped.
    """
    with exclusive(model):
        layers = [layer for layer in batch_norms(model) if not hasattr(layer, _KEPT)]
        before = [layer.track_running_stats for layer in layers]
        try:
            for layer in layers:
                setattr(layer, _KEPT, True)
                layer.track_running_stats = layer.track_running_stats and not layer.training
            yield
        finally:
            for layer, track in zip(layers, before, strict=True):
                delattr(layer, _KEPT)
                layer.track_running_stats = track


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return every layer of a model that has batch and running statistics."""
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]


def unsynced(model: nn.Module) -> list[Tensor]:
    """Return the running statistics that each rank moves by its own rows alone."""
    layers = [layer for layer in batch_norms(model) if not getattr(layer, "sync", False)]
    return [buffer for layer in layers for buffer in layer.buffers()]


def _mode_of(layer: nn.Module, name: Mode) -> Mode:
    """Return the mode that a layer is in where ``name`` is asked for."""
    if is_frozen(layer):
        return "running"
    return "batch" if name == "train" and hasattr(layer, _KEPT) else name


def is_frozen(layer: nn.Module) -> bool:
    """Tell whether a layer's statistics are frozen."""
    return bool(getattr(layer, _FROZEN, False))


def uses_batch(layer: _BatchNorm) -> bool:
    """Tell whether a layer would normalize with batch statistics now."""
    return layer.training or layer.running_mean is None


def moves(layer: _BatchNorm) -> bool:
    """Tell whether a pass would move a layer's running statistics now."""
    return layer.training and layer.track_running_stats
