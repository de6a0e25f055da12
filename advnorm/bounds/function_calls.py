"""The calls that torch.fx records in a ``forward``: which operation each is.

They are of four sorts: functions that are a layer in another spelling (``F.relu``), those
with an entry of their own, those that only read a shape, and all others, which are refused
by name.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.fx import Node as FxNode

from advnorm.bounds.operations.arguments import ComputedArgument, bind
from advnorm.bounds.operations.entry import FUNCTIONS, LAYERS, Operation

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


def operation_of(node: FxNode, where: str) -> Operation:
    """Return the entry of a function; one without is refused."""
    if node.target is getattr:
        where = f"{where.removesuffix('getattr')}{node.args[1]}"
    operation = FUNCTIONS.get(function_name(node))
    if operation is None:
        names = ", ".join(sorted({known.name for known in FUNCTIONS.values()}))
        raise NotImplementedError(
            f"no certificate for the function {where!r}: functions that have one are "
            f"{names}; put others into layers that have one"
        )
    return operation


def bind_arguments(operation: Operation, where: str, args: Any, kwargs: Any) -> Any:
    """Return a function's arguments behind the tensor by name; refuse what no rule reads.

    ``args`` and ``kwargs`` have a :class:`ComputedArgument` for what ``forward`` computes.
    """
    if operation.spreads and len(args) > 1:
        args = (tuple(args),)
    return bind(operation.name, operation.arguments, where, args, kwargs)


def as_layer(
    operation: Operation, node: FxNode, where: str, args: Any, kwargs: Any
) -> nn.Module | None:
    """Return the layer that a function is another spelling of, if it is."""
    if not operation.layers:
        return None
    if _has_values((args, kwargs)):
        raise NotImplementedError(f"the settings of {where!r} depend on the input")
    settings = bind_arguments(operation, where, args, kwargs)
    if settings.pop("inplace", False) and not overwrites(node):
        raise NotImplementedError(f"{where!r}: say inplace=True by name")
    training = settings.pop("training", True)
    return operation.layers[0](**settings).train(training)


def _has_values(value: Any) -> bool:
    if isinstance(value, ComputedArgument):
        return True
    items = value.values() if isinstance(value, dict) else value
    nested = isinstance(value, tuple | list | dict)
    return nested and any(map(_has_values, items))


def function_name(node: FxNode) -> str:
    """Return the name of a function or method; in place or not is the same."""
    target: Any = node.target
    if node.op == "call_method":
        word = str(target)
    elif getattr(target, "__module__", None) in _FROM_TORCH:
        word = target.__name__
    else:
        word = str(target)
    return word.removesuffix("_").lstrip("_")


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
        operation = LAYERS.get(type(model.get_submodule(str(node.target))))
    else:
        operation = None if node.op == "placeholder" else FUNCTIONS.get(function_name(node))
    return operation is not None and operation.is_view


def _call_method(name: str, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(tensor, name)(*args, **kwargs)
