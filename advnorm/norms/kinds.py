"""Which norms of the registry a model has, layers of other packages included."""

from collections import Counter
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from advnorm.norms.affine import AffineNorm
from advnorm.norms.borrowed import BorrowedNorm
from advnorm.norms.dual import DualNorm
from advnorm.norms.median import MedianNorm
from advnorm.norms.mixture import MixtureNorm

_KINDS: dict[type[nn.Module], str] = {  # the first that fits
    MixtureNorm: "mixture",
    DualNorm: "dual",
    BorrowedNorm: "borrowed",
    AffineNorm: "affine",
    MedianNorm: "median",
    _BatchNorm: "batch",
    _InstanceNorm: "instance",
    nn.GroupNorm: "group",
    nn.LayerNorm: "layer",
}
_STATISTICS = ("running_mean", "running_var")


def count_norms(model: nn.Module) -> dict[str, int]:
    """Return how many layers of each norm of the registry a model has.

    Layers of other packages count by what they are: subclasses of PyTorch's norms, and
    frozen batch norms, which keep their statistics and parameters as buffers. A group norm
    of one group counts as ``layer``. A model without norms gives an empty dictionary.

    >>> count_norms(nn.Sequential(nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.BatchNorm2d(3)))
    {'batch': 2, 'layer': 1}
    """
    return dict(Counter(name for layer in _outermost(model) if (name := kind_of(layer))))


def has_norm(model: nn.Module, name: str) -> bool:
    """Tell whether the norms of a model are those of a registry name; none for ``none``.

    Group norm of few features has one group, so that a model of ``group`` may have layers
    that count as ``layer``.
    """
    names = set(count_norms(model))
    if name == "none":
        return not names
    return bool(names) and names <= ({"group", "layer"} if name == "group" else {name})


def kind_of(layer: nn.Module) -> str | None:
    """Return the registry name of one layer, or None if it is not a norm."""
    if isinstance(layer, nn.GroupNorm) and layer.num_groups == 1:
        return "layer"
    for kind, name in _KINDS.items():
        if isinstance(layer, kind):
            return name
    return "batch" if is_frozen_batch_norm(layer) else None


def is_frozen_batch_norm(layer: nn.Module) -> bool:
    """Tell by its structure whether a layer is a batch norm of buffers alone."""
    buffers = {name for name, value in layer._buffers.items() if value is not None}
    return buffers >= {"weight", "bias", *_STATISTICS}


def _outermost(model: nn.Module) -> Iterator[nn.Module]:
    """Yield each layer once, and of a norm that is made of others only the norm."""
    visited: set[nn.Module] = set()
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        if layer not in visited:
            visited.add(layer)
            yield layer
            if kind_of(layer) is None:
                waiting.extend(reversed(list(layer.children())))
