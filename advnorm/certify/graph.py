"""The graph of a model: which layer or function takes what from which.

:func:`trace` follows the model's ``forward`` (torch.fx) down to the layers of ``torch.nn``
and our norms, through containers, residual blocks and modules of the user's own, and gives
a :class:`Graph`: nodes in the order of computation. A node is

- ``input``: the images;
- ``layer``: one ``nn.Module`` applied to one node. Rules look it up by its exact type.
  ``F.relu(x)``, ``x.relu()`` and the like are layers too (``nn.ReLU()``);
- ``function``: one of :data:`advnorm.certify.functions.RULES`, by name: ``add``, ``sub``,
  ``mul``, ``div``, ``neg``, ``cat``, and those of ``POSITIVE`` there, each of which is
  affine in its tensor with coefficients that are never negative (it moves, selects, pads
  or averages values). ``target(*args, **kwargs)`` computes it on tensors;
- ``constant``: parameters, buffers and what is computed from them alone; evaluated anew in
  every walk, with gradients, so a graph outlives an optimizer step;
- ``size``: a number or a tuple taken from the shape of a node.

:func:`walk` runs a rule over the nodes; it evaluates constants and sizes itself. The graph
holds the model's own layers, no copies.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import nn
from torch.fx import Node as FxNode
from torch.fx import Proxy, Tracer

from advnorm.certify import functions
from advnorm.certify.arguments import Value, bind
from advnorm.certify.genuine import refuse_altered
from advnorm.certify.untouched import contents, made, restore
from advnorm.norms import BatchNorm, BorrowedNorm, DualNorm, MixtureNorm

Kind = Literal["input", "layer", "function", "constant", "size"]
_NORMS = (BatchNorm, BorrowedNorm, DualNorm, MixtureNorm)
_DEPEND = ("input", "layer", "function")
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
        return _refs((self.args, self.kwargs))

    @property
    def layer(self) -> nn.Module:
        """The layer of a ``layer`` node."""
        assert isinstance(self.target, nn.Module)
        return self.target


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


def answer(graph: Graph) -> int:
    """Return the node whose value the output hands on, if it keeps its shape."""
    index = graph.output
    while graph.nodes[index].kind == "layer":
        layer = graph.nodes[index].layer
        drops = layer.training and getattr(layer, "p", False)
        if drops or not isinstance(layer, (nn.Flatten, *functions.HAND_ON)):
            break
        (index,) = graph.nodes[index].inputs
    return index


V = TypeVar("V", bound=Shaped)
Rule = Callable[[Node, tuple[Any, ...], Mapping[str, Any]], V]
"""Gives a node's value from its arguments, in which the values of its inputs stand."""


def trace(model: nn.Module) -> Graph:
    """Return the graph of ``model``, whose ``forward`` takes the images alone.

    Branches on values, and functions that have no rule, raise ``NotImplementedError`` with
    the layer's name. A ``training`` flag that ``forward`` looks at is that of the trace.
    """
    refuse_altered(model, lambda layer: _Tracer().is_leaf_module(layer, ""))
    if _Tracer().is_leaf_module(model, ""):  # one layer alone, which is not looked into
        model = nn.Sequential(model)
    before = {module: contents(module) for module in model.modules()}
    try:
        found = _Tracer().trace(model)
    except NotImplementedError:
        raise
    except (torch.fx.proxy.TraceError, TypeError, IndexError, RuntimeError) as error:
        raise NotImplementedError(
            f"{type(model).__name__} cannot be traced: its forward branches on values or "
            f"takes more than one input ({error})"
        ) from error
    finally:  # what forward makes or caches is put into the model, which is not ours
        new = made(model, before[model])
        for module, held in before.items():
            restore(module, held)
    nodes = _Reader(model, new).read(list(found.nodes))
    return Graph(model, nodes, _last_use(nodes))


def walk(graph: Graph, images: V, rule: Rule[V], *, keep: bool = False) -> list[Any]:
    """Return every node's value, the images' being given; ``rule`` gives the others'.

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
            _shape_alone(value) if owner.kind in _DEPEND else value
            for owner, value in zip(graph.nodes, values, strict=False)
        ]
    args, kwargs = _filled((node.args, node.kwargs or {}), values)
    if node.kind in ("constant", "size"):
        return node.target(*args, **kwargs)
    return rule(node, args, kwargs)


def _shape_alone(value: Any) -> Any:
    """Return a tensor without values in the place of whatever has a shape."""
    shape = getattr(value, "shape", None)
    return value if shape is None else torch.empty(shape, device="meta")


def _filled(value: Any, values: list[Any]) -> Any:
    """Put values in the place of references."""
    return _replaced(value, lambda ref: values[ref.index])


def _replaced(value: Any, by: Callable[[Ref], Any]) -> Any:
    """Replace the references in nested arguments."""
    if isinstance(value, Ref):
        return by(value)
    if isinstance(value, tuple | list):
        return type(value)(_replaced(item, by) for item in value)
    if isinstance(value, dict):
        return {key: _replaced(item, by) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*_replaced((value.start, value.stop, value.step), by))
    return value


def _refs(value: Any) -> list[Ref]:
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    items = value.values() if isinstance(value, dict) else value
    is_nested = isinstance(value, tuple | list | dict)
    return [ref for item in items for ref in _refs(item)] if is_nested else []


def _last_use(nodes: tuple[Node, ...]) -> dict[int, int]:
    used = {ref.index: i for i, n in enumerate(nodes) for ref in n.refs}
    return {**dict.fromkeys(range(len(nodes)), len(nodes)), **used}


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
    """Follows a model down to torch's own layers and our norms."""

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
        """Stop at our norms too."""
        leaf: bool = super().is_leaf_module(m, module_qualified_name)
        return type(m) in _NORMS or leaf


def _autocast() -> list[bool]:
    return [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]


class _Reader:
    """Turns torch.fx's nodes into ours."""

    def __init__(self, model: nn.Module, made: Mapping[str, Any]) -> None:
        self.model = model
        self.made = made
        self.nodes: list[Node] = []
        self.index: dict[FxNode, int] = {}

    def read(self, found: list[FxNode]) -> tuple[Node, ...]:
        """Read all; the output of a model is one tensor."""
        images = [node for node in found if node.op == "placeholder"]
        (end,) = (node for node in found if node.op == "output")
        if len(images) != 1 or not isinstance(end.args[0], FxNode):
            raise NotImplementedError(
                f"{type(self.model).__name__} takes {len(images)} inputs or returns "
                "something else than logits: certificates are of models from images to "
                "logits"
            )
        for node in found:
            if node.op != "output":
                self.index[node] = len(self.nodes)
                self.nodes.append(self._node(node))
        last = self.index[end.args[0]]
        if self.nodes[last].kind not in _DEPEND:
            raise NotImplementedError("the model's output does not depend on its input")
        return tuple(self.nodes[: last + 1])

    def _node(self, node: FxNode) -> Node:
        if node.op == "placeholder":
            return Node("input", "input")
        if node.op == "get_attr":
            name = str(node.target)
            known = partial(self.made.__getitem__, name) if name in self.made else name
            return Node("constant", name, known)
        name = _place(node)
        args = _translated((node.args, node.kwargs), self.index)
        inputs = tuple(
            ref.index for ref in _refs(args) if self.nodes[ref.index].kind in _DEPEND
        )
        if node.op == "call_module" and inputs:
            return self._layer(node, name, inputs)
        function = functions.callable_of(node, self.model)
        self._refuse_overwriting(node, name, functions.overwrites(node))
        if not inputs:
            sizes = any(self.nodes[ref.index].kind == "size" for ref in _refs(args))
            return Node("size" if sizes else "constant", name, function, "", *args)
        if functions.is_size(node):
            return Node("size", name, function, "", *args)
        return self._function(node, name, function, *_tensor_first(*args), inputs)

    def _function(
        self,
        node: FxNode,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        inputs: tuple[int, ...],
    ) -> Node:
        """Read a function of the images; refuse arguments that its rule does not read."""
        settings = self._stand_ins((args[1:], dict(kwargs)))
        layer = functions.as_layer(node, name, *settings)
        if layer is not None:
            return Node("layer", name, layer, "", (Ref(inputs[0]),), {}, inputs)
        rule = functions.rule_of(node, name)
        bind(rule, name, *settings)
        function = functions.not_in_place(node, function)
        return Node("function", name, function, rule, args, kwargs, inputs)

    def _stand_ins(self, value: Any) -> Any:
        """Say of what kind the values are that arguments refer to."""

        def kind(ref: Ref) -> Value:
            found = self.nodes[ref.index].kind
            return Value("images" if found in _DEPEND else found)

        return _replaced(value, kind)

    def _layer(self, node: FxNode, name: str, inputs: tuple[int, ...]) -> Node:
        layer = self.model.get_submodule(str(node.target))
        if len(inputs) > 1 or len(node.args) + len(node.kwargs) > 1:
            raise NotImplementedError(
                f"layer {name!r} ({type(layer).__name__}) takes more than one argument: "
                "certificates are of layers that take one tensor"
            )
        self._refuse_overwriting(node, name, bool(getattr(layer, "inplace", False)))
        return Node("layer", name, layer, "", (Ref(inputs[0]),), {}, inputs)

    def _refuse_overwriting(self, node: FxNode, name: str, inplace: bool) -> None:
        """Refuse a layer that overwrites what another one reads too."""
        source = _overwritten(node)
        if inplace and not (isinstance(source, FxNode) and self._depends(source)):
            raise NotImplementedError(
                f"{name!r} works in place on a constant, or writes into one by out=: "
                "compute a new value instead"
            )
        while inplace and isinstance(source, FxNode):
            if len(source.users) > 1:
                raise NotImplementedError(
                    f"layer {name!r} works in place on a value that is used again "
                    "elsewhere: set inplace=False"
                )
            shares = functions.is_view(source, self.model)
            source = _overwritten(source) if shares else None

    def _depends(self, node: FxNode) -> bool:
        return self.nodes[self.index[node]].kind in _DEPEND


def _overwritten(node: FxNode) -> Any:
    """Return the tensor that a call takes, by place or by name."""
    return node.args[0] if node.args else node.kwargs.get("input")


def _tensor_first(args: tuple[Any, ...], kwargs: Any) -> tuple[tuple[Any, ...], Any]:
    """Put the tensor that is given by name into its place."""
    named = next((name for name in ("input", "tensors") if name in kwargs), None)
    if args or named is None:
        return args, kwargs
    return (kwargs[named],), {n: value for n, value in kwargs.items() if n != named}


def _translated(value: Any, index: Mapping[FxNode, int]) -> Any:
    if isinstance(value, FxNode):
        return Ref(index[value])
    if isinstance(value, tuple | list):
        return type(value)([_translated(item, index) for item in value])
    if isinstance(value, dict):
        return {key: _translated(item, index) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*_translated((value.start, value.stop, value.step), index))
    return value


def _place(node: FxNode) -> str:
    """Return where in the model a node stands, for messages."""
    if node.op == "call_module":
        return str(node.target)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    owner = str(stack[-1][0]) if stack else ""
    word = getattr(node.target, "__name__", str(node.target))
    return f"{owner}.{word}" if owner else word
