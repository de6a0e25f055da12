"""The graph of a model: its layers and functions, and the inputs of each.

A :class:`Graph`, made by :func:`advnorm.bounds.tracing.trace`, lists nodes in the order
of computation. A node is

- ``input``: the images;
- ``layer``: one ``nn.Module`` applied to one node. Rules look it up by its exact type.
  ``F.relu(x)``, ``x.relu()`` and the like are layers too (``nn.ReLU()``);
- ``function``: one that has an entry in :mod:`advnorm.bounds.operations`, by name, such as
  ``add`` or ``reshape``. ``target(*args, **kwargs)`` computes it on tensors;
- ``constant``: parameters, buffers and what is computed from them alone; evaluated anew in
  every walk, with gradients, so a graph outlives an optimizer step;
- ``size``: a number or a tuple taken from the shape of a node.

:func:`walk` runs a rule over the nodes; it evaluates constants and sizes itself. The graph
holds the model's own layers, no copies.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import nn

from advnorm.bounds.operations import FUNCTIONS, LAYERS, UNKNOWN, Operation
from advnorm.bounds.operations.shapes import is_dropping

Kind = Literal["input", "layer", "function", "constant", "size"]
DEPEND = ("input", "layer", "function")
"""Kinds of nodes whose value depends on the images."""


@dataclass(frozen=True)
class Ref:
    """Stands for the value of another node in a node's arguments."""

    index: int


@dataclass(frozen=True)
class Node:
    """One step of a model's computation; see the module's text for the kinds.

    ``args`` and ``kwargs`` hold a :class:`Ref` wherever a node's value goes; ``inputs``
    are the nodes among them that depend on the images, in order.
    """

    kind: Kind
    name: str
    target: Any = None
    """The layer; or the function to call on tensors; or a constant's dotted name."""
    function: str = ""
    """The name of a function's rule, such as ``add``."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    inputs: tuple[int, ...] = ()

    @property
    def refs(self) -> "list[Ref]":
        """The references among the arguments, in order."""
        return refs_in((self.args, self.kwargs))

    @property
    def layer(self) -> nn.Module:
        """The layer of a ``layer`` node."""
        assert isinstance(self.target, nn.Module)
        return self.target

    @property
    def operation(self) -> Operation:
        """The entry of a layer or of a function; of all else, that of nothing."""
        if self.kind == "layer":
            return LAYERS.get(type(self.target), UNKNOWN)
        return FUNCTIONS.get(self.function, UNKNOWN)


@dataclass(frozen=True)
class Graph:
    """The nodes of a model in the order of computation; the last is its output."""

    model: nn.Module
    nodes: tuple[Node, ...]
    last_use: Mapping[int, int]
    """The last node that takes each node's value."""

    @property
    def output(self) -> int:
        """The index of the node whose value is the model's."""
        return len(self.nodes) - 1


class Shaped(Protocol):
    """A value with the shape of the tensor it stands for."""

    @property
    def shape(self) -> torch.Size:
        """The shape, batch first."""
        ...


def logits_node(graph: Graph) -> int:
    """Return the node whose value the output returns, if that keeps its shape."""
    index = graph.output
    while True:
        node = graph.nodes[index]
        passes = node.operation.identity or node.operation.flattens
        if not passes or is_dropping(node.layer):
            return index
        (index,) = node.inputs


V = TypeVar("V", bound=Shaped)
Rule = Callable[[Node, tuple[Any, ...], Mapping[str, Any]], V]
"""Gives a node's value from its arguments, in which the values of its inputs stand."""


def walk(graph: Graph, images: V, rule: Rule[V], *, keep: bool = False) -> list[Any]:
    """Return the value of every node: ``images`` for the input, else what ``rule`` returns.

    Without ``keep`` a value is dropped after its last use (``None`` in the list), so that
    only the output and what is still needed stay in memory.
    """
    values: list[Any] = []
    for index, node in enumerate(graph.nodes):
        values.append(_value(graph, node, values, images, rule))
        if not keep:
            for ref in node.refs:
                if graph.last_use[ref.index] == index:
                    values[ref.index] = None
    return values


def _value(graph: Graph, node: Node, values: list[Any], images: V, rule: Rule[V]) -> object:
    if node.kind == "input":
        return images
    if node.kind == "constant" and isinstance(node.target, str):
        return operator.attrgetter(node.target)(graph.model)
    if node.kind == "size":
        values = [
            _shape_alone(value) if owner.kind in DEPEND else value
            for owner, value in zip(graph.nodes, values, strict=False)
        ]
    args, kwargs = _filled((node.args, node.kwargs or {}), values)
    if node.kind in ("constant", "size"):
        return node.target(*args, **kwargs)
    return rule(node, args, kwargs)


def _shape_alone(value: Any) -> Any:
    """Return a tensor on the meta device in the place of a value with a shape."""
    shape = getattr(value, "shape", None)
    return value if shape is None else torch.empty(shape, device="meta")


def _filled(value: Any, values: list[Any]) -> Any:
    """Put values in the place of references."""
    return replaced(value, lambda ref: values[ref.index])


def replaced(value: Any, by: Callable[[Ref], Any]) -> Any:
    """Replace the references in nested arguments."""
    if isinstance(value, Ref):
        return by(value)
    if isinstance(value, tuple | list):
        return type(value)(replaced(item, by) for item in value)
    if isinstance(value, dict):
        return {key: replaced(item, by) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*replaced((value.start, value.stop, value.step), by))
    return value


def refs_in(value: Any) -> list[Ref]:
    """Return the references in nested arguments, in order."""
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    items = value.values() if isinstance(value, dict) else value
    is_nested = isinstance(value, tuple | list | dict)
    return [ref for item in items for ref in refs_in(item)] if is_nested else []


def last_use(nodes: tuple[Node, ...]) -> dict[int, int]:
    """Return for each node the last node that reads its value."""
    used = {ref.index: i for i, n in enumerate(nodes) for ref in n.refs}
    return {**dict.fromkeys(range(len(nodes)), len(nodes)), **used}
