"""Read the norms of any model: which are batch norms, and what else they compute.

A layer of another package is recognized by its structure (running statistics, and modules
inside for an activation or dropout) and then compared with a batch norm: it is converted
only if both compute the same.
"""

from copy import deepcopy
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from advnorm.norms.borrowed import BorrowedNorm
from advnorm.norms.branched import BranchedNorm
from advnorm.norms.dual import DualNorm
from advnorm.norms.standard import BatchNorm
from advnorm.norms.swap import refuse_losses
from advnorm.norms.takeover import input_dims, plain_batch_norm

_FORWARDS = (
    _BatchNorm.forward,
    BatchNorm.forward,
    BorrowedNorm.forward,
    nn.SyncBatchNorm.forward,
)
_MOST_CHILDREN = 3


class NormSource(NamedTuple):
    """A norm of a model, as a batch norm and the modules that it applies afterwards."""

    norm: BatchNorm
    after: dict[str, nn.Module]
    statistics: bool
    """Whether the running statistics are those of the model."""


def read_batch_norm(path: str, parent: nn.Module, layer: nn.Module) -> NormSource | None:
    """Return what a batch norm consists of, or None for any other layer."""
    if isinstance(layer, DualNorm | BranchedNorm):
        raise ValueError(
            f"layer {path!r} is a {type(layer).__name__} already: collapse it first"
        )
    if is_plain(layer):
        assert isinstance(layer, _BatchNorm)
        refuse_losses(path, layer, modules=layer.named_children())
        _refuse_shared_or_fused(path, parent, layer)
        plain = plain_batch_norm(layer, layer.num_features, dims=input_dims(layer))
        return NormSource(plain, {}, statistics=layer.running_mean is not None)
    source = read_foreign(path, layer)
    if source is None and _looks_like_batch_norm(layer):
        raise NotImplementedError(
            f"layer {path!r} ({type(layer).__name__}) has running statistics, but computes "
            "something else than batch norm and the modules inside it: replace it by a "
            "batch norm and the rest before you convert"
        )
    return source


def read_sample_norm(path: str, layer: nn.Module) -> NormSource | None:
    """Return a group or instance norm as a batch norm that has seen no batch."""
    if not isinstance(layer, nn.GroupNorm | _InstanceNorm):
        return None
    forwards = nn.GroupNorm.forward, _InstanceNorm.forward
    if type(layer).forward not in forwards or "forward" in vars(layer):
        raise NotImplementedError(
            f"layer {path!r} is a {type(layer).__name__}, which does more than its norm: "
            "split it into the norm and the rest before you convert"
        )
    refuse_losses(path, layer, modules=layer.named_children())
    features = layer.num_channels if isinstance(layer, nn.GroupNorm) else layer.num_features
    plain = plain_batch_norm(layer, features, dims=input_dims(layer))
    statistics = getattr(layer, "running_mean", None) is not None
    return NormSource(plain, {}, statistics)


def is_plain(layer: nn.Module) -> bool:
    """Tell whether a layer computes batch norm and nothing else, by its class."""
    own = "forward" in vars(layer)
    return isinstance(layer, _BatchNorm) and type(layer).forward in _FORWARDS and not own


def read_foreign(path: str, layer: nn.Module) -> NormSource | None:
    """Return a batch norm of another package, with the modules it applies afterwards."""
    if not _looks_like_batch_norm(layer):
        return None
    features = len(layer.running_mean)  # type: ignore[arg-type]
    children = {n: m for n, m in layer.named_children() if not isinstance(m, nn.Identity)}
    if len(children) > _MOST_CHILDREN:
        return None
    for dims in _possible_dims(layer):
        plain = plain_batch_norm(layer, features, dims=dims)
        for after in map(dict, permutations(children.items())):
            if _computes_the_same(layer, nn.Sequential(plain, *after.values()), dims):
                refuse_losses(path, layer)
                _refuse_shared_or_fused(path, layer, layer)
                return NormSource(plain, after, statistics=True)
    return None


def _looks_like_batch_norm(layer: nn.Module) -> bool:
    own = type(layer).__module__.startswith("torch.")
    statistics = [layer._buffers.get(name) for name in ("running_mean", "running_var")]
    named = hasattr(layer, "weight") and hasattr(layer, "bias")
    vectors = all(s is not None and s.ndim == 1 for s in statistics)
    return vectors and named and not own and not isinstance(layer, _InstanceNorm)


def _possible_dims(layer: nn.Module) -> tuple[int, ...]:
    if isinstance(layer, nn.BatchNorm1d):
        return (2, 3)
    known = input_dims(layer)
    return (known,) if known else (4, 2, 3, 5)


def _computes_the_same(layer: nn.Module, other: nn.Sequential, dims: int) -> bool:
    """Run both on a few values, in evaluation and, where the layer has it, in training."""
    both = deepcopy(layer), deepcopy(other)
    modes = [False, True]
    if not isinstance(layer, _BatchNorm) or isinstance(layer, nn.SyncBatchNorm):
        modes = [False]  # frozen in training too, or a communication between ranks
    for training in modes:
        try:
            outputs = [_run(module.train(training), layer, dims) for module in both]
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
            return False
        if outputs[0].shape != outputs[1].shape or not _close(*outputs):
            return False
    return all(
        _close(getattr(both[0], name), getattr(both[1][0], name))
        for name in ("running_mean", "running_var")
    )


def _run(module: nn.Module, like: nn.Module, dims: int) -> Tensor:
    mean = like.running_mean
    assert isinstance(mean, Tensor)
    generator = torch.Generator().manual_seed(dims)
    x = 2 * torch.randn(4, len(mean), *(3,) * (dims - 2), generator=generator) + 0.5
    devices = [mean.device] if mean.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        generators = [torch.default_generator, *torch.cuda.default_generators]
        for each in generators if devices else generators[:1]:
            each.manual_seed(0)  # the same dropout
        output: Tensor = module(x.to(device=mean.device, dtype=mean.dtype))
    return output


def _close(a: Tensor, b: Tensor) -> bool:
    atol = 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4
    return torch.allclose(a, b, rtol=atol, atol=atol, equal_nan=True)


def _refuse_shared_or_fused(path: str, parent: nn.Module, layer: nn.Module) -> None:
    if getattr(layer, "process_group", None) is not None:
        raise NotImplementedError(
            f"layer {path!r} shares its statistics within a process group, and a new layer "
            "would share them with all ranks: leave out process_group"
        )
    fused = type(parent).__module__.startswith("torch.ao.")
    if fused and type(parent).forward is not nn.Sequential.forward:
        raise NotImplementedError(
            f"layer {path!r} is fused into a {type(parent).__name__}: convert the model "
            "before it is fused"
        )
