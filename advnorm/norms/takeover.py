"""Copy parameters, statistics and flags from one norm to another."""

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.norms.standard import BatchNorm

_DIMS: dict[type[nn.Module], int] = {
    nn.BatchNorm1d: 2,
    nn.BatchNorm2d: 4,
    nn.BatchNorm3d: 5,
    nn.InstanceNorm1d: 3,
    nn.InstanceNorm2d: 4,
    nn.InstanceNorm3d: 5,
}
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def copy_statistics(source: _BatchNorm, target: _BatchNorm) -> None:
    """Copy the running statistics; ``target`` has none if ``source`` has none."""
    target.track_running_stats = source.track_running_stats
    for name in _STATISTICS:
        value = getattr(source, name)
        target.register_buffer(name, None if value is None else value.detach().clone())


def copy_affine(source: nn.Module, target: nn.Module) -> None:
    """Copy weight and bias, each where ``source`` has it; buffers are not trained."""
    for name in ("weight", "bias"):
        old = getattr(source, name)
        new = None if old is None else nn.Parameter(old.detach().clone(), old.requires_grad)
        setattr(target, name, new)


def affine_owners(layer: nn.Module) -> list[nn.Module]:
    """Return the modules that have the affine parameters of a norm, if it has any."""
    owners = [m for m in layer.modules() if {"weight", "bias"} & set(m._parameters)]
    with_parameters = [m for m in owners if m.weight is not None or m.bias is not None]
    return with_parameters or owners[:1]


def device_and_dtype_of(layer: nn.Module) -> Tensor | None:
    """Return a tensor of the layer whose device and dtype a new layer takes."""
    tensors = (getattr(layer, name, None) for name in ("weight", "bias", "running_mean"))
    return next((t for t in tensors if t is not None), None)


def plain_batch_norm(layer: nn.Module, features: int, *, dims: int | None) -> BatchNorm:
    """Return a batch norm with what ``layer`` has of parameters, statistics and flags.

    What ``layer`` lacks is as in a new batch norm; ``dims`` is the number of dimensions of
    its input, where known.
    """
    plain = BatchNorm(
        features,
        eps=getattr(layer, "eps", 0.0),
        momentum=getattr(layer, "momentum", 0.1),
        affine=layer.weight is not None or layer.bias is not None,
        sync=isinstance(layer, nn.SyncBatchNorm) or bool(getattr(layer, "sync", False)),
    )
    like = device_and_dtype_of(layer)
    if like is not None:
        plain.to(device=like.device, dtype=like.dtype)
    if isinstance(layer, _BatchNorm):
        copy_statistics(layer, plain)
    elif getattr(layer, "running_mean", None) is not None:
        for name in ("running_mean", "running_var"):
            getattr(plain, name).copy_(getattr(layer, name).detach())
    copy_affine(layer, plain)
    plain.dims = dims
    return plain.train(layer.training)


def input_dims(layer: nn.Module) -> int | None:
    """Return how many dimensions a layer's input has, by its class or its last input."""
    known = getattr(layer, "dims", None)
    return known or next((n for kind, n in _DIMS.items() if isinstance(layer, kind)), None)
