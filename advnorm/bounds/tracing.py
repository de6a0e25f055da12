"""From a model to its graph: torch.fx traces ``forward``, and the trace is read.

:func:`trace` goes down to the layers of ``torch.nn`` and all that have an entry, through
containers, residual blocks and modules of the user's own.
"""

import operator
from copy import copy
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.fx import Node as FxNode
from torch.fx import Proxy, Tracer

from advnorm.allocator import keep_freed_memory
from advnorm.bounds.graph import Graph, last_use
from advnorm.bounds.layer_checks import refuse_altered
from advnorm.bounds.operations.entry import LAYERS
from advnorm.bounds.trace_reader import TraceReader

_Attributes = dict[str, tuple[Any, Any]]


def trace(model: nn.Module) -> Graph:
    """Return the graph of ``model``, whose ``forward`` takes the images alone.

    Branches on values, and functions that have no rule, raise ``NotImplementedError`` with
    the layer's name. A ``training`` flag that ``forward`` looks at is that of the trace.
    """
    tracer = _Tracer()
    refuse_altered(model, lambda layer: tracer.is_leaf_module(layer, ""))
    if tracer.is_leaf_module(model, ""):  # one layer alone, which is not looked into
        model = nn.Sequential(model)
    before = {module: _snapshot(module) for module in model.modules()}
    try:
        recorded = tracer.trace(model)
    except NotImplementedError:
        raise
    except NameError as error:  # torch.fx knows no other word for it
        raise NotImplementedError(
            f"{type(model).__name__} calls a module that is no part of it, so that a "
            "certificate would not see its weights: give the torch.nn.Module itself, with "
            "all its parts"
        ) from error
    except (torch.fx.proxy.TraceError, TypeError, IndexError, RuntimeError) as error:
        raise NotImplementedError(
            f"{type(model).__name__} cannot be traced: its forward branches on values or "
            f"takes more than one input ({error})"
        ) from error
    finally:  # what forward makes or caches is put into the model, which is not ours
        new = _new_tensors(model, before[model])
        for module, attributes in before.items():
            _restore(module, attributes)
    nodes = TraceReader(model, new).read(list(recorded.nodes))
    return Graph(model, nodes, last_use(nodes))


def _snapshot(module: nn.Module) -> _Attributes:
    """Return a module's attributes, and copies of those that are containers."""
    return {
        name: (value, copy(value) if isinstance(value, (dict, list, set)) else None)
        for name, value in vars(module).items()
    }


def _new_tensors(model: nn.Module, before: _Attributes) -> dict[str, Any]:
    """Return the tensors that a trace put into a model."""
    new = {name: value for name, value in vars(model).items() if name not in before}
    for kind in ("_parameters", "_buffers"):
        old = before[kind][1]
        new |= {n: v for n, v in vars(model)[kind].items() if n not in old}
    return new


def _restore(module: nn.Module, before: _Attributes) -> None:
    """Put a module's attributes back, and what its containers contained."""
    vars(module).clear()
    for name, (value, contents) in before.items():
        vars(module)[name] = value
        if isinstance(value, list):
            value[:] = contents
        elif contents is not None:
            value.clear()
            value.update(contents)


class _Proxy(Proxy):
    """Records ``x += y`` as what it is: torch.fx would take it for ``x = x + y``."""

    def __iadd__(self, other: object) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})

    def __isub__(self, other: object) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.isub, (self, other), {})

    def __imul__(self, other: object) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.imul, (self, other), {})

    def __itruediv__(self, other: object) -> Proxy:
        operation = operator.itruediv
        return self.tracer.create_proxy("call_function", operation, (self, other), {})


class _Tracer(Tracer):
    """Follows a model down to torch's own layers, and to all that have an entry."""

    proxy_buffer_attributes = True

    def __init__(self) -> None:
        super().__init__()
        self._autocast = _autocast()

    def create_node(self, *args: Any, **kwargs: Any) -> FxNode:
        """Record a call, unless ``forward`` has it computed in another precision."""
        if _autocast() != self._autocast:
            raise NotImplementedError(
                "the model uses autocast in its forward, and no rule covers that rounding: "
                "compute in one precision"
            )
        return super().create_node(*args, **kwargs)

    def proxy(self, node: FxNode) -> Proxy:
        """Stand for a node's value."""
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Stop at layers that have an entry, our norms among them."""
        leaf: bool = super().is_leaf_module(m, module_qualified_name)
        return type(m) in LAYERS or leaf


def _autocast() -> list[bool]:
    return [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]


class _CachedGraph(NamedTuple):
    """A graph without its model, which would keep itself alive, and what it was made of."""

    graph: Graph
    modules: list[nn.Module]
    training: list[bool]


_CACHE: WeakKeyDictionary[nn.Module, _CachedGraph] = WeakKeyDictionary()


def cached_trace(model: nn.Module) -> Graph:
    """Return the graph of ``model``, traced anew only if its layers or flags changed.

    For training, where the code of ``forward`` meets the same model thousands of times. A
    certificate traces anew: an attribute that ``forward`` looks at may have changed.
    """
    modules = list(model.modules())[1:]
    training = [module.training for module in (model, *modules)]
    cached = _CACHE.get(model)
    if cached and cached.training == training and _same(cached.modules, modules):
        return Graph(model, cached.graph.nodes, cached.graph.last_use)
    graph = trace(model)
    keep_freed_memory(next(model.parameters(), None))
    if modules:  # a bare layer is a node of its own graph
        kept = Graph(nn.Identity(), graph.nodes, graph.last_use)
        _CACHE[model] = _CachedGraph(kept, modules, training)
    return graph


def _same(first: list[nn.Module], other: list[nn.Module]) -> bool:
    return len(first) == len(other) and all(map(lambda a, b: a is b, first, other))
