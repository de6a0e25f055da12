"""The functions and methods of tensors that a model's ``forward`` may call.

They are of four sorts: those that are a layer in another spelling (``F.relu``), those with
a rule of their own (:data:`RULES`), those that only read a shape, and all others, which are
refused by name.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.fx import Node as FxNode

from advnorm.bounds.arguments import Value, bind

_MOVES = {"contiguous", "flatten", "getitem", "movedim", "permute", "reshape", "squeeze"}
_VIEWS = _MOVES | {"transpose", "unsqueeze"}
POSITIVE = frozenset(_VIEWS | {"mean", "pad", "sum"})
"""Affine in their tensor, with coefficients that are never negative."""

RULES = POSITIVE | {"add", "sub", "mul", "div", "neg", "cat"}
"""The names of the functions that have a rule of their own."""

_SPELLINGS = {
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "truediv": "div",
    "itruediv": "div",
    "divide": "div",
    "subtract": "sub",
    "multiply": "mul",
    "negative": "neg",
    "concat": "cat",
    "concatenate": "cat",
    "moveaxis": "movedim",
    "view": "reshape",
}
HAND_ON = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
AFFINE = (
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.ZeroPad2d,
    nn.ReflectionPad2d,
    nn.ReplicationPad2d,
)
"""Layers that average or pad: their coefficients are never negative."""
_VIEW_LAYERS = (nn.Flatten, nn.Unflatten, *HAND_ON)

_LAYERS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky_relu": nn.LeakyReLU,
    "hardtanh": nn.Hardtanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "max_pool1d": nn.MaxPool1d,
    "max_pool2d": nn.MaxPool2d,
    "avg_pool1d": nn.AvgPool1d,
    "avg_pool2d": nn.AvgPool2d,
    "adaptive_avg_pool1d": nn.AdaptiveAvgPool1d,
    "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
    "dropout": nn.Dropout,
}
"""Functions that are a layer in another spelling; their settings are the layer's."""

_FROM_TORCH = (None, "torch", "torch.nn.functional", "_operator", "torch._C._nn")


def callable_of(node: FxNode, model: nn.Module) -> Callable[..., Any]:
    """Return what to call with a node's arguments."""
    if node.op == "call_module":
        return model.get_submodule(str(node.target))
    if node.op == "call_method":
        # a bound's strides may differ from those of the model's own value
        name = "reshape" if node.target == "view" else str(node.target)
        return partial(_call_method, name)
    assert callable(node.target)
    return node.target


def is_size(node: FxNode) -> bool:
    """Tell whether a node reads a tensor's shape alone."""
    if node.op == "call_method":
        return node.target in ("size", "dim", "numel")
    return node.target is getattr and node.args[1] in ("shape", "ndim")


def is_rank(node: FxNode) -> bool:
    """Tell whether a node reads the number of dimensions alone."""
    return node.target == "dim" or (node.target is getattr and node.args[1] == "ndim")


def is_whole_size(node: FxNode) -> bool:
    """Tell whether a node reads all sizes of a tensor."""
    if node.op == "call_method":
        return node.target == "size" and len(node.args) + len(node.kwargs) == 1
    return node.target is getattr and node.args[1] == "shape"


def read_part(node: FxNode) -> Any:
    """Return which part of a shape a node reads: ``size(1)``, or ``[1]`` of a shape."""
    if node.target == "size":
        return next(iter([*node.args[1:], *node.kwargs.values()]), None)
    return node.args[1] if node.target is operator.getitem else None


def is_behind_first(part: Any) -> bool:
    """Tell whether a part of a shape surely leaves out the number of samples."""
    if isinstance(part, slice):
        return is_behind_first(part.start) and (part.step is None or part.step > 0)
    return isinstance(part, int) and part > 0


def rule_of(node: FxNode, name: str) -> str:
    """Return the name of a function's rule; one without is refused."""
    word = spelling(node)
    if node.target is getattr:
        name = f"{name.removesuffix('getattr')}{node.args[1]}"
    if word not in RULES:
        raise NotImplementedError(
            f"no certificate for the function {name!r}: functions that have one are "
            f"{', '.join(sorted({*RULES, *_LAYERS}))}; put others into layers that have one"
        )
    return word


def as_layer(node: FxNode, name: str, args: Any, kwargs: Any) -> nn.Module | None:
    """Return the layer that a function is another spelling of, if it is.

    ``args`` and ``kwargs`` are those behind the tensor, as
    :func:`advnorm.bounds.arguments.bind` takes them.
    """
    word = spelling(node)
    kind = _LAYERS.get(word)
    if kind is None:
        return None
    if _has_values((args, kwargs)):
        raise NotImplementedError(f"the settings of {name!r} depend on the input")
    settings = bind(word, name, args, kwargs)
    if settings.pop("inplace", False) and not overwrites(node):
        raise NotImplementedError(f"{name!r}: say inplace=True by name")
    training = settings.pop("training", True)
    return kind(**settings).train(training)


def _has_values(value: Any) -> bool:
    if isinstance(value, Value):
        return True
    items = value.values() if isinstance(value, dict) else value
    nested = isinstance(value, tuple | list | dict)
    return nested and any(map(_has_values, items))


def spelling(node: FxNode) -> str:
    """Return one name for all spellings of a function; in place or not is the same."""
    target: Any = node.target
    if node.op == "call_method":
        word = str(target)
    elif getattr(target, "__module__", None) in _FROM_TORCH:
        word = target.__name__
    else:
        word = str(target)
    word = word.removesuffix("_").lstrip("_")
    return _SPELLINGS.get(word, word)


def overwrites(node: FxNode) -> bool:
    """Tell whether a call changes its tensor in place."""
    word = str(getattr(node.target, "__name__", node.target))
    inplace = operator.iadd, operator.isub, operator.imul, operator.itruediv
    named = word.endswith("_") and not word.endswith("__")
    by_keyword = node.kwargs.get("inplace") or node.kwargs.get("out") is not None
    return named or node.target in inplace or bool(by_keyword)


def not_in_place(node: FxNode, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes the same without changing its tensor."""
    word = str(node.target if node.op == "call_method" else "")
    named = word.endswith("_") and not word.endswith("__")
    return partial(_call_method, word.removesuffix("_")) if named else function


def is_view(node: FxNode, model: nn.Module) -> bool:
    """Tell whether a node's value may share memory with its input's."""
    if node.op == "call_module":
        return type(model.get_submodule(str(node.target))) in _VIEW_LAYERS
    return node.op != "placeholder" and spelling(node) in _VIEWS | {"dropout"}


def _call_method(name: str, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(tensor, name)(*args, **kwargs)
