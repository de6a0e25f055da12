"""Whose statistics a normalization layer uses, and whether a pass moves them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from advnorm.norms import instance
from advnorm.norms.thread_scope import exclusive

Mode = Literal["train", "batch", "running"]

# mode: (normalize with batch statistics, keep running statistics up to date)
_FLAGS: dict[Mode, tuple[bool, bool]] = {
    "train": (True, True),
    "batch": (True, False),
    "running": (False, True),
}
_FROZEN = "_statistics_frozen"
_KEPT = "_statistics_kept"
_STATE = ("training", "track_running_stats", "forward")


@contextmanager
def mode(model: nn.Module, name: Mode) -> Iterator[None]:
    """Run the layers of ``model`` that keep statistics in one mode, then put each back.

    - ``"train"``: normalize with batch statistics and update the running ones.
    - ``"batch"``: normalize with batch statistics, leave the running ones alone.
    - ``"running"``: normalize with the running statistics.

    It is about batch norms, and instance norms that keep running statistics (the batch's
    are then each sample's own). Layers are restored one by one, also on error, so a layer
    frozen by the caller is still frozen afterwards. Layers that keep no running statistics
    always use the batch's; inside :func:`freeze_statistics` the others always use the
    running ones, and inside :func:`keep_statistics` ``"train"`` is ``"batch"``.
    """
    if name not in _FLAGS:
        raise ValueError(f"no mode {name!r}; there are: {', '.join(_FLAGS)}")
    with exclusive(model), _put_back(_keeping(model)) as layers:
        for layer in layers:
            _set(layer, _mode_of(layer, name))
        yield


@contextmanager
def freeze_statistics(model: nn.Module) -> Iterator[None]:
    """Train with the running statistics and leave them alone (xie2020, section 4.3).

    Within it every mode is ``"running"``: training and testing then normalize alike. The
    paper does so in the last 10 epochs.
    """
    with exclusive(model), _put_back(_without(_FROZEN, model)) as layers:
        for layer in layers:
            setattr(layer, _FROZEN, True)
            layer.training = False
        try:
            yield
        finally:
            for layer in layers:
                delattr(layer, _FROZEN)


@contextmanager
def keep_statistics(model: nn.Module) -> Iterator[None]:
    """Let no pass move the running statistics, whatever mode it asks for.

    For the second pass of a step (SAM, APART): its batch statistics are used and dropped.
    """
    with exclusive(model), _put_back(_without(_KEPT, model)) as layers:
        for layer in layers:
            setattr(layer, _KEPT, True)
            if layer.training:
                _set(layer, "batch")
        try:
            yield
        finally:
            for layer in layers:
                delattr(layer, _KEPT)


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return every batch norm of a model."""
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]


def unsynced_statistics(model: nn.Module) -> list[Tensor]:
    """Return the running statistics that each rank moves by its own rows alone."""
    layers = [layer for layer in _keeping(model) if not getattr(layer, "sync", False)]
    return [buffer for layer in layers for buffer in layer.buffers()]


def _keeping(model: nn.Module) -> list[nn.Module]:
    """Return the layers that use, and may move, statistics of several passes."""
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm) or instance.tracks(layer)
    ]


def _without(mark: str, model: nn.Module) -> list[nn.Module]:
    return [layer for layer in _keeping(model) if not hasattr(layer, mark)]


@contextmanager
def _put_back(layers: Sequence[nn.Module]) -> Iterator[Sequence[nn.Module]]:
    """Make each layer, one by one, what it was before the block, also on error."""
    before: list[dict[str, Any]] = [
        {name: layer.__dict__[name] for name in _STATE if name in layer.__dict__}
        for layer in layers
    ]
    try:
        yield layers
    finally:
        for layer, state in zip(layers, before, strict=True):
            for name in _STATE:
                layer.__dict__.pop(name, None)
            layer.__dict__.update(state)


def _set(layer: nn.Module, name: Mode) -> None:
    """Put one layer in a mode."""
    training, track = _FLAGS[name]
    layer.training = training
    if isinstance(layer, _BatchNorm):
        layer.track_running_stats = track and layer.running_mean is not None
    else:
        assert isinstance(layer, _InstanceNorm)
        (instance.let_move if track else instance.let_rest)(layer)


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


def updates_running(layer: _BatchNorm) -> bool:
    """Tell whether a pass would move a layer's running statistics now."""
    return layer.training and layer.track_running_stats
