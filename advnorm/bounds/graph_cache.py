"""Graphs that are remembered from one training step to the next."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

from torch import nn

from advnorm.allocator import keep_freed_memory
from advnorm.bounds.graph import Graph
from advnorm.bounds.tracing import trace


class _Known(NamedTuple):
    """A graph without its model, which would keep itself alive, and what it was made of."""

    graph: Graph
    modules: list[nn.Module]
    training: list[bool]


_KNOWN: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


def cached_trace(model: nn.Module) -> Graph:
    """Return the graph of ``model``, traced anew only if its layers or flags changed.

    For training, where the code of ``forward`` meets the same model thousands of times. A
    certificate traces anew: an attribute that ``forward`` looks at may have changed.
    """
    modules = list(model.modules())[1:]
    training = [module.training for module in (model, *modules)]
    known = _KNOWN.get(model)
    if known and known.training == training and _same(known.modules, modules):
        return Graph(model, known.graph.nodes, known.graph.last_use)
    graph = trace(model)
    keep_freed_memory(next(model.parameters(), None))
    if modules:  # a bare layer is a node of its own graph
        lasting = Graph(nn.Identity(), graph.nodes, graph.last_use)
        _KNOWN[model] = _Known(lasting, modules, training)
    return graph


def _same(one: list[nn.Module], other: list[nn.Module]) -> bool:
    return len(one) == len(other) and all(map(lambda a, b: a is b, one, other))
