"""Convert the batch norms of any model to another norm, and back to PyTorch's."""

from collections.abc import Callable, Mapping
from copy import deepcopy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from advnorm.norms.affine import AffineNorm
from advnorm.norms.borrowed import BorrowedNorm
from advnorm.norms.branched import BranchedNorm
from advnorm.norms.dual import DualNorm
from advnorm.norms.mixture import MixtureNorm
from advnorm.norms.route import DOMAINS, Domain
from advnorm.norms.standard import NORMS, BatchNorm
from advnorm.registry import validate

_LAYERS: dict[str, type[nn.Module]] = {
    "batch": BatchNorm,
    "mixture": MixtureNorm,
    "dual": DualNorm,
    "borrowed": BorrowedNorm,
    "affine": AffineNorm,
}
_TORCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_DIMS = {nn.BatchNorm1d: 2, nn.BatchNorm2d: 4, nn.BatchNorm3d: 5}


def convert(
    model: nn.Module, name: str, *, options: Mapping[str, object] | None = None
) -> nn.Module:
    """Return a copy of ``model`` whose batch norms are of another kind.

    Affine parameters, running statistics, momentum, eps, device, dtype, training flags and
    ``requires_grad`` are kept; a layer used in several places stays one layer. With the
    running statistics the copy computes what ``model`` does, for every route. ``name`` is
    ``batch``, ``mixture``, ``dual``, ``borrowed`` or ``affine``; ``options`` are those of
    the norm, except for eps, momentum, affine and start, which are taken from each layer.
    """
    if name not in _LAYERS:
        NORMS[name]  # an unknown name says which exist
        raise ValueError(
            f"norm {name!r} cannot take over the running statistics of batch norm: convert "
            f"to {', '.join(_LAYERS)}, or build the model with norm {name!r}"
        )
    chosen = dict(options or {})
    for key in ("eps", "momentum", "affine", "start"):
        if key in chosen:
            raise ValueError(f"{key} is taken from each layer: leave it out of the options")
    validate(NORMS[name], chosen, owner=f"norm {name!r}")

    def swap(path: str, parent: nn.Module, layer: nn.Module) -> nn.Module | None:
        if not _is_batch_norm(path, parent, layer):
            return None
        assert isinstance(layer, _BatchNorm)
        new = _LAYERS[name](
            layer.num_features,
            eps=layer.eps,
            momentum=layer.momentum,
            affine=layer.affine,
            **{**({"sync": True} if isinstance(layer, nn.SyncBatchNorm) else {}), **chosen},
        )
        return _take_over(path, layer, new)

    copy, count = _swap_layers(model, swap)
    if not count:
        raise ValueError("the model has no batch norm to convert")
    return copy


def collapse(model: nn.Module, domain: Domain = "adversarial") -> nn.Module:
    """Return a copy of ``model`` with plain PyTorch batch norms of one branch.

    In evaluation it computes what ``model`` computes under
    ``route(model, domain=domain)``, and it runs without advnorm. A dual layer whose two
    sets of moments differ has no equivalent batch norm and is refused by name.
    """
    if domain not in DOMAINS:
        raise ValueError(f"no domain {domain!r}; there are: {', '.join(DOMAINS)}")

    def swap(path: str, parent: nn.Module, layer: nn.Module) -> nn.Module | None:
        if not isinstance(layer, BatchNorm | DualNorm | BranchedNorm):
            return None
        for inner in layer.modules():
            _refuse_losses(path, inner)
        source = _branch(path, layer, domain)
        affine = layer if isinstance(layer, DualNorm) else source
        dims = [bn.dims for bn in layer.modules() if isinstance(bn, BatchNorm) and bn.dims]
        if not dims:
            raise ValueError(
                f"layer {path!r} has had no input, so it is unknown whether it is 1-D or "
                "2-D: run the model once before you collapse it"
            )
        plain = _TORCH_NORMS[dims[0]](
            source.num_features,
            eps=source.eps,
            momentum=source.momentum,
            affine=affine.weight is not None,
        )
        _copy_statistics(source, plain)
        _copy_affine(affine, plain)
        return plain.train(source.training)

    return _swap_layers(model, swap)[0]


def check_statistics(model: nn.Module) -> None:
    """Refuse running statistics that are not finite, or variances below zero."""
    for path, layer in model.named_modules():
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
            mean, var = layer.running_mean, layer.running_var
            assert var is not None
            if not (torch.isfinite(mean).all() and torch.isfinite(var).all()):
                raise ValueError(
                    f"the running statistics of layer {path!r} are NaN or infinite: go "
                    "back to an earlier checkpoint"
                )
            if (var < 0).any():
                raise ValueError(
                    f"a running variance of layer {path!r} is negative: the weights are "
                    "damaged, load them again"
                )


Swap = Callable[[str, nn.Module, nn.Module], nn.Module | None]


def _swap_layers(model: nn.Module, swap: Swap) -> tuple[nn.Module, int]:
    """Return a deep copy with the layers that ``swap`` replaces, and their number.

    A layer that is used in several places is swapped once and stays one layer.
    """
    _refuse_ties(model)
    for path, layer in model.named_modules():
        parameters = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
        if any(map(is_lazy, parameters)):
            raise ValueError(
                f"layer {path!r} is lazy and has no size yet: run the model once"
            )
    copy = deepcopy(model)
    swapped: dict[int, nn.Module] = {}
    visited = []  # keeps replaced layers alive, or an id could be used again

    def visit(path: str, parent: nn.Module, layer: nn.Module) -> nn.Module:
        if id(layer) in swapped:
            return swapped[id(layer)]
        visited.append(layer)
        swapped[id(layer)] = new = swap(path, parent, layer) or layer
        if new is layer:
            for name, child in layer._modules.items():
                if child is not None:
                    layer._modules[name] = visit(f"{path}.{name}".strip("."), layer, child)
        return new

    root = visit("", copy, copy)
    return root, sum(swapped[id(layer)] is not layer for layer in visited)


def _refuse_ties(model: nn.Module) -> None:
    """Refuse norms that share parameters with another layer: new norms would not."""
    owners: dict[int, tuple[str, nn.Module]] = {}
    for path, layer in model.named_modules():
        for parameter in layer.parameters(recurse=False):
            first, other = owners.setdefault(id(parameter), (path, layer))
            norms = isinstance(layer, _BatchNorm) or isinstance(other, _BatchNorm)
            if other is not layer and norms:
                raise NotImplementedError(
                    f"layers {first!r} and {path!r} share a parameter, which the converted "
                    "layers would not: give each its own before you convert"
                )


def _is_batch_norm(path: str, parent: nn.Module, layer: nn.Module) -> bool:
    """Tell whether a layer is a batch norm; one that does more is refused by name."""
    kind = type(layer)
    if kind in (MixtureNorm, DualNorm, BorrowedNorm, AffineNorm):
        raise ValueError(f"layer {path!r} is a {kind.__name__} already: collapse it first")
    if not isinstance(layer, _BatchNorm):
        return False
    standard = kind.forward in (_BatchNorm.forward, BatchNorm.forward)
    if not (standard or kind is nn.SyncBatchNorm) or "forward" in vars(layer):
        raise NotImplementedError(
            f"layer {path!r} is a {kind.__name__}, which does more than batch norm: split "
            "it into a batch norm and the rest before you convert"
        )
    _refuse_losses(path, layer)
    if (layer.weight is None) != (layer.bias is None):
        raise NotImplementedError(
            f"layer {path!r} ({kind.__name__}) has a weight but no bias, or the reverse, "
            "which the other norms do not support: give it both"
        )
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
    return True


def _refuse_losses(path: str, layer: nn.Module) -> None:
    """Refuse a layer that has more than a batch norm's parameters and statistics."""
    buffers = {"running_mean", "running_var", "num_batches_tracked"}
    own = isinstance(layer, _BatchNorm)
    hooks = [value for key, value in vars(layer).items() if key.endswith("_hooks")]
    more = (
        set(layer._buffers) - buffers,
        set(layer._parameters) - {"weight", "bias"},
        set(layer._modules) - {"clean", "adversarial"} if own else (),
    )
    if any(hooks) or any(more) or is_parametrized(layer):
        raise NotImplementedError(
            f"layer {path!r} ({type(layer).__name__}) has hooks, parameters, buffers or "
            "parametrizations that a new layer would lose: remove them before you convert"
        )


def _take_over(path: str, layer: _BatchNorm, new: nn.Module) -> nn.Module:
    """Copy the parameters, statistics and flags of ``layer`` into ``new``."""
    if isinstance(new, DualNorm) and layer.running_mean is None:
        raise ValueError(
            f"layer {path!r} has no running statistics, which a dual norm needs"
        )
    like = layer.weight if layer.affine else layer.running_mean
    if like is not None:
        new.to(device=like.device, dtype=like.dtype)
    branches = [m for m in new.modules() if isinstance(m, BatchNorm)]
    for branch in branches:
        branch.dims = getattr(layer, "dims", None) or _DIMS.get(type(layer))
        _copy_statistics(layer, branch)
    for affine in _affine_owners(new):
        _copy_affine(layer, affine)
    return new.train(layer.training)


def _affine_owners(layer: nn.Module) -> list[nn.Module]:
    """Return the modules that have the affine parameters of a norm."""
    return [
        m for m in layer.modules() if "weight" in m._parameters or "bias" in m._parameters
    ]


def _branch(path: str, layer: nn.Module, domain: Domain) -> BatchNorm:
    """Return the batch norm of a layer in one domain."""
    if isinstance(layer, BranchedNorm):
        return layer.branch(domain)
    if isinstance(layer, BatchNorm):
        return layer
    assert isinstance(layer, DualNorm)
    pairs = zip(layer.clean.buffers(), layer.adversarial.buffers(), strict=True)
    if not all(torch.equal(a, b) for a, b in pairs):
        raise NotImplementedError(
            f"layer {path!r} is a DualNorm whose gate depends on the input: no plain batch "
            "norm computes the same"
        )
    return layer.clean


def _copy_statistics(source: _BatchNorm, target: _BatchNorm) -> None:
    target.track_running_stats = source.track_running_stats
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        value = getattr(source, name)
        target.register_buffer(name, None if value is None else value.detach().clone())


def _copy_affine(source: nn.Module, target: nn.Module) -> None:
    for name in ("weight", "bias"):
        old = getattr(source, name)
        if old is not None:
            new = nn.Parameter(old.detach().clone(), requires_grad=old.requires_grad)
            setattr(target, name, new)
