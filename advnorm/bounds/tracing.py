"""From a model to its graph: torch.fx follows ``forward``, and what it saw is read.

:func:`trace` goes down to the layers of ``torch.nn`` and all that have an entry, through
containers, residual blocks and modules of the user's own.
"""

import operator
from typing import Any

import torch
from torch import nn
from torch.fx import Node as FxNode
from torch.fx import Proxy, Tracer

from advnorm.bounds.graph import Graph, last_use
from advnorm.bounds.layer_checks import refuse_altered
from advnorm.bounds.operations.entry import LAYERS
from advnorm.bounds.snapshot import contents, made, restore
from advnorm.bounds.trace_reader import Reader


def trace(model: nn.Module) -> Graph:
    """Return the graph of ``model``, whose ``forward`` takes the images alone.

    Branches on values, and functions that have no rule, raise ``NotImplementedError`` with
    the layer's name. A ``training`` flag that ``forward`` looks at is that of the trace.
    """
    tracer = _Tracer()
    refuse_altered(model, lambda layer: tracer.is_leaf_module(layer, ""))
    if tracer.is_leaf_module(model, ""):  # one layer alone, which is not looked into
        model = nn.Sequential(model)
    before = {module: contents(module) for module in model.modules()}
    try:
        found = tracer.trace(model)
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
        new = made(model, before[model])
        for module, held in before.items():
            restore(module, held)
    nodes = Reader(model, new).read(list(found.nodes))
    return Graph(model, nodes, last_use(nodes))


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
                "the model uses autocast in its forward, and a certificate knows nothing "
                "of what that rounds: compute in one precision"
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
