"""Refuse layers that compute something else than their type says.

Rules look a layer up by its exact type and read its settings. Neither shows a hook, a
replaced method, or weights that are no plain tensors (quantized ones round products).
"""

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl")
_PLAIN = (Tensor, nn.Parameter)
_LAZY = (nn.UninitializedParameter, nn.UninitializedBuffer)


def refuse_altered(model: nn.Module, is_layer: Callable[[nn.Module], bool]) -> None:
    """Refuse a model with hooks, replaced methods, or tensors of another class.

    ``is_layer`` tells which modules are taken by their type alone.
    """
    if not isinstance(model, nn.Module):
        raise NotImplementedError(
            f"certificates need a torch.nn.Module, not a {type(model).__name__}: give "
            "the model itself"
        )
    if any(getattr(every_module, f"_global{hooks}") for hooks in _HOOKS):
        raise NotImplementedError(
            "there are forward hooks on all modules, which a certificate would not see: "
            "remove them"
        )
    if any(getattr(type(model), name) is not getattr(nn.Module, name) for name in _CALLS):
        raise NotImplementedError(
            f"{type(model).__name__} has a __call__ of its own, which a certificate would "
            "not see: put it into forward"
        )
    for path, layer in model.named_modules():
        what = f"layer {path or type(layer).__name__!r}"
        leaf = is_layer(layer)
        own = _has_own_method(layer) if leaf else "forward" in vars(layer)
        if own or any(getattr(layer, hooks) for hooks in _HOOKS):
            raise NotImplementedError(
                f"{what} has forward hooks or a forward of its own, which a certificate "
                "would not see: remove them"
            )
        if leaf:
            _refuse_replaced(what, layer)
        _refuse_classes(what, layer)


def _has_own_method(layer: nn.Module) -> bool:
    """Tell whether an attribute of the object hides a method of its class."""
    return any(callable(getattr(type(layer), name, None)) for name in vars(layer))


def _refuse_replaced(what: str, layer: nn.Module) -> None:
    """Refuse a layer whose class does not run the code of the module it comes from."""
    for name in ("forward", "_conv_forward", "__call__"):
        owner = next((c for c in type(layer).__mro__ if name in vars(c)), None)
        if owner is None:
            continue
        home = vars(sys.modules.get(owner.__module__, sys))
        if getattr(vars(owner)[name], "__globals__", None) is not home:
            raise NotImplementedError(
                f"{what}: {owner.__name__}.{name} was replaced by other code, which a "
                "certificate would not see: put torch's own back, or subclass the layer"
            )


def _refuse_classes(what: str, layer: nn.Module) -> None:
    own = {**layer._parameters, **layer._buffers}
    for name, value in own.items():
        lazy = isinstance(value, _LAZY)
        if value is not None and not lazy and not is_plain(value):
            raise NotImplementedError(
                f"{what} has {name!r} of the class {type(value).__name__}, whose products "
                "may be rounded or not be those of numbers: use plain tensors"
            )


def is_plain(value: Tensor) -> bool:
    """Tell whether a tensor is of torch's own class, dense and not quantized."""
    dense = value.layout == torch.strided and not value.is_quantized
    return type(value) in _PLAIN and dense
