"""Counts operations by PyTorch's own formulas, on the meta device.

A deep network repeats its blocks. So the result of an operation is cached by the layouts
of its arguments, and computed for the first block only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]
CachedCall = tuple[Layout | list[Layout | None], int]


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, adds up the operations of convolutions and matrix products.

    A meta tensor has no values: where the code reads one, it gets 1; a copy to another
    device is all zeros.

    >>> with OperationCounter() as counter:
    ...     _ = torch.empty(2, 3, device="meta") @ torch.empty(3, 4, device="meta")
    >>> counter.flops
    48
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: int = 0
        self._cache: dict[Any, CachedCall] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1
        if func is torch.ops.aten._to_copy.default and _leaves_meta(args[0], kwargs):
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        key = _key(func, args, kwargs)
        if key is not None and key in self._cache:
            layouts, flops = self._cache[key]
            self.flops += flops
            return _empty_like(layouts)
        out = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        flops = formula(*args, **kwargs, out_val=out) if formula else 0
        self.flops += flops
        if key is not None and _is_new_memory(out, (args, kwargs)):
            self._cache[key] = (_layouts(out), flops)
        return out


def _leaves_meta(tensor: Tensor, kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return tensor.is_meta and device is not None and torch.device(device).type != "meta"


def _key(func: Any, args: Any, kwargs: Any) -> Any:
    """Describe a call by its arguments' layouts; ``None`` if it writes or returns views."""
    schema = func._schema
    if func.namespace != "aten" or schema.is_mutable:
        return None
    if any(output.alias_info for output in schema.returns):
        return None
    return func, _hashable(args), _hashable(kwargs)


def _hashable(value: Any) -> Any:
    """Return a value that is equal for arguments that make the same layouts."""
    if isinstance(value, Tensor):
        return _layout(value), value.is_meta
    if isinstance(value, tuple | list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return type(value), value  # 1, 1.0 and True are equal, but give different results


def _is_new_memory(out: Any, arguments: Any) -> bool:
    """Return whether the outputs are meta tensors that share no memory."""
    outputs = out if isinstance(out, tuple) else (out,)
    if out is None or not all(tensor is None or _on_meta(tensor) for tensor in outputs):
        return False
    old = {_memory(leaf) for leaf in tree_flatten(arguments)[0] if isinstance(leaf, Tensor)}
    own = [_memory(tensor) for tensor in outputs if tensor is not None]
    return len({*own} - old) == len(own)


def _on_meta(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def _layouts(out: Any) -> Layout | list[Layout | None]:
    if isinstance(out, Tensor):
        return _layout(out)
    return [None if tensor is None else _layout(tensor) for tensor in out]


def _empty_like(layouts: Layout | list[Layout | None]) -> Any:
    if isinstance(layouts, tuple):
        return _empty(layouts)
    return tuple(None if layout is None else _empty(layout) for layout in layouts)


def _layout(tensor: Tensor) -> Layout:
    return tensor.shape, tensor.stride(), tensor.dtype


def _empty(layout: Layout) -> Tensor:
    shape, stride, dtype = layout
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def _memory(tensor: Tensor) -> int:
    memory: int = tensor.untyped_storage()._cdata
    return memory
