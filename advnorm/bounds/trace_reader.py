"""Read a torch.fx graph: every call becomes a node with rules, or is refused."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn
from torch.fx import Node as FxNode

from advnorm.bounds import function_calls
from advnorm.bounds.graph import DEPEND, Node, Ref, refs_in, replaced
from advnorm.bounds.operations.arguments import ComputedArgument


class TraceReader:
    """Turns torch.fx's nodes into ours."""

    def __init__(self, model: nn.Module, new: Mapping[str, Any]) -> None:
        self.model = model
        self.new_tensors = new
        self.nodes: list[Node] = []
        self.index: dict[FxNode, int] = {}
        self.shapes: set[int] = set()
        """Nodes that are a whole shape."""
        self.counting: set[int] = set()
        """Nodes of sizes that may tell how many samples there are."""

    def read(self, recorded: list[FxNode]) -> tuple[Node, ...]:
        """Read all; the output of a model is one tensor."""
        images = [node for node in recorded if node.op == "placeholder"]
        (end,) = (node for node in recorded if node.op == "output")
        if len(images) != 1 or not isinstance(end.args[0], FxNode):
            raise NotImplementedError(
                f"{type(self.model).__name__} takes {len(images)} inputs or returns "
                "something else than logits: a certificate needs a model from images to "
                "logits"
            )
        for node in recorded:
            if node.op != "output":
                self.index[node] = len(self.nodes)
                self.nodes.append(self._node(node))
        last = self.index[end.args[0]]
        if self.nodes[last].kind not in DEPEND:
            raise NotImplementedError("the model's output does not depend on its input")
        return tuple(self.nodes[: last + 1])

    def _node(self, node: FxNode) -> Node:
        if node.op == "placeholder":
            return Node("input", "input")
        if node.op == "get_attr":
            name = str(node.target)
            value = (
                partial(self.new_tensors.__getitem__, name)
                if name in self.new_tensors
                else name
            )
            return Node("constant", name, value)
        name = _place(node)
        args = _translated((node.args, node.kwargs), self.index)
        inputs = tuple(
            ref.index for ref in refs_in(args) if self.nodes[ref.index].kind in DEPEND
        )
        if node.op == "call_module" and inputs:
            return self._layer(node, name, inputs)
        function = function_calls.callable_of(node, self.model)
        inplace = function_calls.overwrites(node) or bool(
            getattr(function, "inplace", False)
        )
        self._refuse_overwriting(node, name, inplace)
        sizes = any(self.nodes[ref.index].kind == "size" for ref in refs_in(args))
        if function_calls.is_size(node) if inputs else sizes:
            self._note_count(node, args)
            return Node("size", name, function, "", *args)
        if not inputs:
            return Node("constant", name, function, "", *args)
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
        settings = self._placeholders((args[1:], dict(kwargs)))
        operation = function_calls.operation_of(node, name)
        layer = function_calls.as_layer(operation, node, name, *settings)
        if layer is not None:
            return Node("layer", name, layer, "", (Ref(inputs[0]),), {}, inputs)
        function_calls.bind_arguments(operation, name, *settings)
        self._refuse_count(name, operation.name, (args, kwargs))
        function = function_calls.not_in_place(node, function)
        return Node("function", name, function, operation.name, args, kwargs, inputs)

    def _note_count(self, node: FxNode, args: Any) -> None:
        """Note whether a size may tell how many samples there are."""
        here, refs = self.index[node], {ref.index for ref in refs_in(args)}
        part = function_calls.read_part(node)
        if refs & self.shapes and part is not None:
            counts = not function_calls.is_behind_first(part)
        elif refs & self.counting:
            counts = True
        elif function_calls.is_size(node):
            counts = function_calls.is_whole_size(
                node
            ) or not function_calls.is_behind_first(part)
            counts = counts and not function_calls.is_rank(node)
            self.shapes |= {here} if function_calls.is_whole_size(node) else set()
        else:
            counts = False
        self.counting |= {here} if counts else set()

    def _refuse_count(self, name: str, function: str, args: Any) -> None:
        """Refuse arithmetic with the number of samples; to reshape by it is fine."""
        used = {ref.index for ref in refs_in(args)}
        if used & self.counting and function != "reshape":
            raise NotImplementedError(
                f"{name!r} computes with the number of samples (or a size of a negative "
                "dimension, which may be it): the model's answer for one image depends on "
                "the others of the batch"
            )

    def _placeholders(self, value: Any) -> Any:
        """Say of what kind the values are that arguments refer to."""

        def kind(ref: Ref) -> ComputedArgument:
            of_node = self.nodes[ref.index].kind
            return ComputedArgument("images" if of_node in DEPEND else of_node)

        return replaced(value, kind)

    def _layer(self, node: FxNode, name: str, inputs: tuple[int, ...]) -> Node:
        layer = self.model.get_submodule(str(node.target))
        if len(inputs) > 1 or len(node.args) + len(node.kwargs) > 1:
            raise NotImplementedError(
                f"layer {name!r} ({type(layer).__name__}) takes more than one argument: "
                "only layers that take one tensor have rules"
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
            shares = function_calls.is_view(source, self.model)
            source = _overwritten(source) if shares else None

    def _depends(self, node: FxNode) -> bool:
        return self.nodes[self.index[node]].kind in DEPEND


def _overwritten(node: FxNode) -> Any:
    """Return the tensor that a call takes, by place or by name."""
    return node.args[0] if node.args else node.kwargs.get("input")


def _tensor_first(args: tuple[Any, ...], kwargs: Any) -> tuple[tuple[Any, ...], Any]:
    """Move the tensor that is passed by name to the first place."""
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
