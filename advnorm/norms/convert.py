"""Convert the norms of any model to another norm of the registry."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import NamedTuple

from torch import nn

from advnorm.norms.affine import AffineNorm
from advnorm.norms.borrowed import BorrowedNorm
from advnorm.norms.dual import DualNorm
from advnorm.norms.fixup_scaling import scale_branches
from advnorm.norms.functional import lift_calls
from advnorm.norms.median import MedianNorm
from advnorm.norms.mixture import MixtureNorm
from advnorm.norms.sources import NormSource, read_batch_norm, read_sample_norm
from advnorm.norms.standard import NORMS, BatchNorm
from advnorm.norms.swap import refuse_lazy, refuse_ties, swap_layers
from advnorm.norms.takeover import affine_owners, copy_affine, copy_statistics
from advnorm.registry import validate

_BATCH_NORMS: dict[str, type[nn.Module]] = {
    "batch": BatchNorm,
    "mixture": MixtureNorm,
    "dual": DualNorm,
    "borrowed": BorrowedNorm,
    "affine": AffineNorm,
    "median": MedianNorm,
}
_INSTANCE_NORMS = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}

Read = Callable[[str, nn.Module, nn.Module], NormSource | None]


class Conversion(NamedTuple):
    """A converted model, and a note on each layer, by its path."""

    model: nn.Module
    notes: dict[str, str]


def convert(
    model: nn.Module, name: str, *, options: Mapping[str, object] | None = None
) -> nn.Module:
    """Return a copy of ``model`` whose batch norms are another norm of the registry.

    - ``batch``, ``mixture``, ``dual``, ``borrowed``, ``affine``, ``median``: affine
      parameters, running statistics and momentum are kept. With the running statistics the
      copy computes what ``model`` does, for every route.
    - ``group``, ``layer``, ``instance``: affine parameters are kept. These norms have no
      running statistics, so that the copy computes something else and must be trained.
    - ``none``: the norms are removed, with their parameters. ``options={"fixup": True}``
      scales residual branches so that a deep network can be trained without norms
      (:func:`advnorm.norms.fixup_scaling.scale_branches`).

    eps, device, dtype, training flags and ``requires_grad`` are always kept; a layer used
    in several places stays one layer. ``options`` are those of the norm, except for eps,
    momentum, affine and start, which are taken from each layer.

    Batch norms of other packages are recognized by structure and checked by running them:
    an activation or dropout inside is kept, after the new norm, in an ``nn.Sequential``.
    Batch norms of buffers alone (frozen) get parameters that are not trained, and running
    statistics that move in training. Calls of ``F.batch_norm`` become layers through the
    traced graph of their module, which then is a ``torch.fx.GraphModule``. In a model
    without batch norms, group and instance norms are converted; they have no statistics to
    keep. What cannot be converted is refused by name, with the reason.
    :func:`convert_with_notes` also tells what became of each layer.
    """
    return convert_with_notes(model, name, options=options).model


def convert_with_notes(
    model: nn.Module, name: str, *, options: Mapping[str, object] | None = None
) -> Conversion:
    """Return what :func:`convert` returns, and what was kept of each layer, by its path.

    >>> convert_with_notes(nn.Sequential(nn.BatchNorm2d(4)), "group").notes
    {'0': 'BatchNorm2d to group: kept parameters, not statistics'}
    """
    chosen = dict(options or {})
    fixup = name == "none" and bool(chosen.pop("fixup", False))
    for key in ("eps", "momentum", "affine", "start"):
        if key in chosen:
            raise ValueError(f"{key} is taken from each layer: leave it out of the options")
    validate(NORMS[name], chosen, owner=f"norm {name!r}")
    refuse_ties(model)
    refuse_lazy(model)
    copy = lift_calls(deepcopy(model))
    result = _convert_layers(copy, name, chosen, read_batch_norm)
    if not result.notes:
        result = _convert_layers(copy, name, chosen, lambda p, _, m: read_sample_norm(p, m))
    if not result.notes:
        raise ValueError(
            "the model has no batch norm to convert, and no group or instance norm: build "
            "it with one, or use it as it is"
        )
    if fixup:
        scale_branches(result.model)
    return result


def _convert_layers(
    model: nn.Module, name: str, options: Mapping[str, object], read: Read
) -> Conversion:
    notes: dict[str, str] = {}

    def swap(path: str, parent: nn.Module, layer: nn.Module) -> nn.Module | None:
        source = read(path, parent, layer)
        if source is None:
            return None
        new = _new_norm(path, name, source, options)
        notes[path] = _note(layer, name, source)
        if not source.after:
            return new
        parts = OrderedDict({"norm": new, **source.after})
        sequence = nn.Sequential(parts)
        sequence.training = layer.training
        return sequence

    return Conversion(swap_layers(model, swap)[0], notes)


def _new_norm(
    path: str, name: str, source: NormSource, options: Mapping[str, object]
) -> nn.Module:
    """Return a norm with the parameters, statistics and flags of ``source``."""
    old = source.norm
    has_affine = old.weight is not None or old.bias is not None
    if name in _BATCH_NORMS:
        settings = ({} if name == "median" else {"sync": old.sync}) | dict(options)
        new = _BATCH_NORMS[name](
            old.num_features,
            eps=old.eps,
            momentum=old.momentum,
            affine=has_affine,
            **settings,
        )
        _take_statistics(path, old, new)
    elif name == "none":
        return nn.Identity().train(old.training)
    elif name == "instance":
        new = _instance_norm(path, old, has_affine)
    else:
        new = NORMS[name](eps=old.eps, affine=has_affine, **options)(old.num_features)
    for owner in affine_owners(new) if has_affine else []:
        copy_affine(old, owner)
    return new.train(old.training)


def _take_statistics(path: str, old: BatchNorm, new: nn.Module) -> None:
    if isinstance(new, DualNorm) and old.running_mean is None:
        raise ValueError(
            f"layer {path!r} has no running statistics, which a dual norm needs"
        )
    for branch in new.modules():
        if isinstance(branch, BatchNorm):
            branch.dims = old.dims
            copy_statistics(old, branch)


def _instance_norm(path: str, old: BatchNorm, affine: bool) -> nn.Module:
    if old.dims == 2:
        raise ValueError(
            f"layer {path!r} normalizes vectors, or sequences, by a BatchNorm1d, and "
            "instance norm would set each feature of a vector to zero: convert to another "
            "norm"
        )
    kind = _INSTANCE_NORMS.get(old.dims or 4, nn.InstanceNorm2d)
    return kind(old.num_features, eps=old.eps, affine=affine)


def _note(layer: nn.Module, name: str, source: NormSource) -> str:
    parameters = source.norm.weight is not None and name != "none"
    statistics = source.statistics and name in _BATCH_NORMS
    kept = ["parameters"] * parameters + ["statistics"] * statistics + list(source.after)
    lost = ["parameters"] * (not parameters) + ["statistics"] * (not statistics)
    words = f"{type(layer).__name__} to {name}: kept {' and '.join(kept) or 'nothing'}"
    return f"{words}, not {' and '.join(lost)}" if lost else words
