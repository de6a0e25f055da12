"""Which statistics a normalization layer uses, and whether a pass updates them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from advnorm.norms.thread_scope import exclusive

Mode = Literal["train", "batch", "running"]
"""Whose statistics norms use: ``train`` the batch's, and moves the running ones."""

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
    """Run the layers of ``model`` with running statistics in one mode, then restore each.

    - ``"train"``: normalize with batch statistics and update the running ones.
    - ``"batch"``: normalize with batch statistics, do not update the running ones.
    - ``"running"``: normalize with the running statistics.

    This concerns batch norms, and instance norms with running statistics (whose batch
    statistics are those of each sample). Layers are restored one by one, also on error, so
    a layer frozen by the caller is still frozen afterwards. Layers without running
    statistics always use the batch's. Inside :func:`freeze_statistics` the others always
    use the running ones, and inside :func:`keep_statistics` ``"train"`` means ``"batch"``.
    """
    if name not in _FLAGS:
        raise ValueError(f"no mode {name!r}; there are: {', '.join(_FLAGS)}")
    with exclusive(model), _restored(_tracking_layers(model)) as layers:
        for layer in layers:
            _set(layer, _mode_of(layer, name))
        yield


@contextmanager
def freeze_statistics(model: nn.Module) -> Iterator[None]:
    """Train with fixed running statistics (xie2020, section 4.3).

    Inside, every mode is ``"running"``, so training normalizes as testing does. The paper
    does so in the last 10 epochs.
    """
    with exclusive(model), _restored(_unmarked(_FROZEN, model)) as layers:
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
    """Do not update the running statistics in any mode.

    For the second pass of a step (SAM, APART): its batch statistics are used only once.
    """
    with exclusive(model), _restored(_unmarked(_KEPT, model)) as layers:
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
    """Return the running statistics that each rank updates by its own rows alone."""
    layers = [
        layer for layer in _tracking_layers(model) if not getattr(layer, "sync", False)
    ]
    return [buffer for layer in layers for buffer in layer.buffers()]


def _tracking_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers with running statistics, and all batch norms."""
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm) or _tracks(layer)
    ]


def _unmarked(mark: str, model: nn.Module) -> list[nn.Module]:
    return [layer for layer in _tracking_layers(model) if not hasattr(layer, mark)]


@contextmanager
def _restored(layers: Sequence[nn.Module]) -> Iterator[Sequence[nn.Module]]:
    """Restore each layer after the block, also on error."""
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
        _set_instance_norm(layer, track=track)


def _mode_of(layer: nn.Module, name: Mode) -> Mode:
    """Return the mode of a layer when ``name`` is requested."""
    if is_frozen(layer):
        return "running"
    return "batch" if name == "train" and hasattr(layer, _KEPT) else name


def is_frozen(layer: nn.Module) -> bool:
    """Tell whether a layer's statistics are frozen."""
    return bool(getattr(layer, _FROZEN, False))


def uses_batch(layer: _BatchNorm) -> bool:
    """Tell whether a layer normalizes with batch statistics now."""
    return layer.training or layer.running_mean is None


def updates_running(layer: _BatchNorm) -> bool:
    """Tell whether a pass updates a layer's running statistics now."""
    return layer.training and layer.track_running_stats


def _tracks(layer: nn.Module) -> bool:
    """Tell whether a layer is an instance norm with running statistics."""
    return isinstance(layer, _InstanceNorm) and layer.running_mean is not None


def _set_instance_norm(layer: _InstanceNorm, *, track: bool) -> None:
    """Let training passes update an instance norm's running statistics, or not.

    PyTorch has no flag for it: a pass that normalizes by the input's statistics always
    updates the running ones, unless they are hidden for its time.
    """
    if track:
        layer.__dict__.pop("forward", None)
    else:
        layer.__dict__["forward"] = partial(_forward_without_update, layer)


def _forward_without_update(layer: _InstanceNorm, input: Tensor) -> Tensor:
    running = layer.running_mean, layer.running_var
    layer.running_mean = layer.running_var = None
    try:
        return type(layer).forward(layer, input)
    finally:
        layer.running_mean, layer.running_var = running
