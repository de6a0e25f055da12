"""Replace layers of a model wherever they are used; refuse if something would be lost."""

from collections.abc import Callable, Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

Swap = Callable[[str, nn.Module, nn.Module], nn.Module | None]


def swap_layers(model: nn.Module, swap: Swap) -> tuple[nn.Module, int]:
    """Replace the layers for which ``swap`` returns another; return their number too.

    ``swap`` gets the path, the parent and the layer. A layer that is used in several places
    is swapped once and stays one layer. New layers are not searched.
    """
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

    root = visit("", model, model)
    return root, sum(swapped[id(layer)] is not layer for layer in visited)


def refuse_lazy(model: nn.Module) -> None:
    """Refuse layers that have no size yet."""
    for path, layer in model.named_modules():
        parameters = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
        if any(map(is_lazy, parameters)):
            raise ValueError(
                f"layer {path!r} is lazy and has no size yet: run the model once"
            )


def refuse_ties(model: nn.Module) -> None:
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


def refuse_losses(path: str, layer: nn.Module, *, modules: Iterable[object] = ()) -> None:
    """Refuse a norm that has more than a norm's parameters and statistics.

    ``modules`` are modules inside of it that a new layer would lose too.
    """
    parameters = {"weight", "bias"}
    statistics = {"running_mean", "running_var", "num_batches_tracked"}
    hooks = [value for key, value in vars(layer).items() if key.endswith("_hooks")]
    more = (
        set(layer._buffers) - statistics - parameters,
        set(layer._parameters) - parameters,
        list(modules),
    )
    if any(hooks) or any(more) or is_parametrized(layer):
        raise NotImplementedError(
            f"layer {path!r} ({type(layer).__name__}) has hooks, parameters, buffers, "
            "modules or parametrizations that a new layer would lose: remove them before "
            "you convert"
        )
