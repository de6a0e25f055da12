"""From the traced graph of a model to the steps of its folded form.

Weights are not read here: a plan outlives optimizer steps, and holds layers, no copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from advnorm.bounds.graph import Graph, Node, Ref, refs_in, replaced, walk
from advnorm.folding import feature_maps as maps
from advnorm.folding.dual_gate import DualStep
from advnorm.folding.steps import (
    PRODUCTS,
    Bound,
    CallStep,
    LayerStep,
    Layout,
    MapStep,
    ProductStep,
    Step,
    SumStep,
)
from advnorm.norms import DualNorm

RESHAPES = ("flatten", "view", "reshape")
"""Functions that keep the order of what they reshape."""


@dataclass(frozen=True)
class FoldingPlan:
    """The steps of a folded model in order, by the number of their value."""

    steps: Mapping[int, Step]
    constants: Mapping[int, Node]
    output: int
    norms: tuple[nn.Module, ...]
    """Those whose statistics must be fixed."""
    convolutions: tuple[nn.Conv2d, ...]

    def bind(self, model: nn.Module, layout: Layout) -> "FoldedModel":
        """Fold the present weights."""
        constants: dict[int, Any] = {}
        for index, node in self.constants.items():
            constants[index] = _constant(node, model, constants)
        bound = [
            (index, step.bind(layout, constants), step.inputs)
            for index, step in self.steps.items()
        ]
        return FoldedModel(bound, self.output, layout)


class FoldedModel:
    """Runs bound steps on images; a value is dropped after its last use."""

    def __init__(
        self,
        steps: Sequence[tuple[int, Bound, tuple[int, ...]]],
        output: int,
        layout: Layout,
    ) -> None:
        self.output, self.layout = output, layout
        last = {i: index for index, _, inputs in steps for i in inputs}
        self.steps = [
            (index, run, inputs, [i for i in set(inputs) if last[i] == index and i])
            for index, run, inputs in steps
        ]

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits in the precision of the images."""
        values: dict[int, Any] = {0: self.layout.arrange(images)}
        for index, run, inputs, drop in self.steps:
            values[index] = run(*[values[i] for i in inputs])
            for i in drop:
                if i != self.output:
                    del values[i]
        logits: Tensor = values[self.output]
        return logits.to(images.dtype)


def make_plan(graph: Graph, images: Tensor) -> FoldingPlan | None:
    """Return the folded form of a traced model; ``None`` if some layer is random now."""
    dropping = (n for n in graph.nodes if n.kind == "layer" and _is_random(n.layer))
    if any(True for _ in dropping) or graph.nodes[0].kind != "input":
        return None
    with torch.no_grad():
        values = walk(graph, images, lambda n, a, k: n.target(*a, **k), keep=True)
    shapes = [v.shape if isinstance(v, Tensor) else torch.Size() for v in values]
    return _Planner(graph.nodes, shapes).plan()


def _is_random(layer: nn.Module) -> bool:
    return isinstance(layer, _DropoutNd) and layer.training and layer.p > 0


def _constant(node: Node, model: nn.Module, others: Mapping[int, Any]) -> Any:
    """Return a parameter, a buffer, or what is computed from them."""
    if isinstance(node.target, str):
        value = attrgetter(node.target)(model)
        return value.detach() if isinstance(value, Tensor) else value
    args, kwargs = replaced((node.args, dict(node.kwargs or {})), lambda r: others[r.index])
    with torch.no_grad():
        return node.target(*args, **kwargs)


class _Planner:
    """Goes through the nodes once, and joins each to the step before it where it can."""

    def __init__(self, nodes: Sequence[Node], shapes: Sequence[torch.Size]) -> None:
        self.nodes, self.shapes = nodes, shapes
        self.dims = [len(shape) for shape in shapes]
        self.steps: dict[int, Step] = {}
        self.constants: dict[int, Node] = {}
        self.value_of = list(range(len(nodes)))
        """The step that computes the value of each node."""
        self.tail = list(range(len(nodes)))
        """The last node that a step has taken in."""
        self.readers: list[set[int]] = [set() for _ in nodes]
        self.norms: list[nn.Module] = []
        for index, node in enumerate(nodes):
            if self._is_identity(node):
                self.value_of[index] = self.value_of[node.inputs[0]]
            for ref in node.refs:
                self.readers[self.value_of[ref.index]].add(index)
        self.identity = list(self.value_of)
        for index in range(len(nodes)):  # who reads an identity reads its input
            if self.identity[index] != index:
                self.readers[self.identity[index]].discard(index)
        self.readers[self.identity[-1]].add(len(nodes))

    def plan(self) -> FoldingPlan:
        """Return the steps of all nodes."""
        for index, node in enumerate(self.nodes):
            if node.kind == "constant":
                self.constants[index] = node
            elif node.kind != "input" and self.identity[index] == index:
                self._add(index, node)
            elif self.identity[index] != index:
                self.value_of[index] = self.value_of[self.identity[index]]
        products = (s.layer for s in self.steps.values() if isinstance(s, ProductStep))
        return FoldingPlan(
            self.steps,
            self.constants,
            self.value_of[-1],
            tuple(self.norms),
            tuple(layer for layer in products if isinstance(layer, nn.Conv2d)),
        )

    def _add(self, index: int, node: Node) -> None:
        layer = node.target if node.kind == "layer" else None
        standardization = self._standardization(index)
        if standardization is not None:
            self._add_map(index, *standardization)
        elif layer is not None and maps.is_foldable(layer):
            self.norms.append(layer)
            self._add_map(index, partial(maps.map_of_norm, layer), self._input(node))
        elif type(layer) is DualNorm:
            self.norms.append(layer)
            self.steps[index] = DualStep(layer, (self._input(node),), self.dims[index])
        elif type(layer) in PRODUCTS:
            self._add_product(index, layer, self._input(node))
        elif type(layer) is nn.ReLU and self._join_relu(index, self._input(node)):
            pass
        elif node.kind == "function" and node.function in ("add", "iadd") and _is_sum(node):
            self._add_sum(index, node)
        elif layer is not None:
            args = self._resolved(node)
            self.steps[index] = LayerStep(layer, *args, inputs=self._values(args))
        else:
            args = self._resolved(node)
            self.steps[index] = CallStep(node.target, *args, inputs=self._values(args))

    def _add_map(self, index: int, source: maps.MapSource, value: int) -> None:
        """Fold a map into the layer before it, or leave it as a step."""
        before = self.steps.get(value)
        if (
            isinstance(before, ProductStep)
            and before.after is None
            and not before.relu
            and self._only_reader(value, index)
            and self._features_first(before)
        ):
            before.after = source
            self._join(index, value)
        else:
            self.steps[index] = MapStep(source, (value,), self.dims[index])

    def _add_product(self, index: int, layer: Any, value: int) -> None:
        """Take in a map before the layer where nothing is padded."""
        step, before = ProductStep(layer, (value,)), self.steps.get(value)
        if (
            isinstance(before, MapStep)
            and not before.relu
            and self._only_reader(value, index)
            and not is_padded(layer)
            and getattr(layer, "groups", 1) == 1
            and (not isinstance(layer, nn.Linear) or before.dims == 2)
        ):
            step.before, step.inputs = before.source, before.inputs
            del self.steps[value]
        elif isinstance(layer, nn.Linear) and self._flattens(value, index):
            (maps_index,) = self.nodes[value].inputs
            step.maps = self.shapes[maps_index][1:]
            step.inputs = (self.value_of[maps_index],)
            del self.steps[value]
        self.steps[index] = step

    def _flattens(self, value: int, index: int) -> bool:
        """Tell whether a value is feature maps as rows, which one linear layer reads."""
        node = self.nodes[value]
        step, known = self.steps.get(value), len(node.inputs) == 1
        if not known or not isinstance(step, LayerStep | CallStep):
            return False
        before, after = self.shapes[node.inputs[0]], self.shapes[value]
        reshapes = type(node.target) is nn.Flatten or node.function in RESHAPES
        whole = len(before) == 4 and after == (before[0], prod(before[1:]))
        alone = self.tail[value] == value and self._only_reader(value, index)
        return reshapes and whole and alone

    def _join_relu(self, index: int, value: int) -> bool:
        step = self.steps.get(value)
        joins = isinstance(step, ProductStep | MapStep | SumStep)
        if not joins or not self._only_reader(value, index):
            return False
        assert isinstance(step, ProductStep | MapStep | SumStep)
        step.relu = True
        self._join(index, value)
        return True

    def _add_sum(self, index: int, node: Node) -> None:
        """Overwrite an input that nothing else reads, autograd included."""
        inputs = tuple(self.value_of[ref.index] for ref in node.refs)
        fresh = None
        for place, value in enumerate(inputs):
            step = self.steps.get(value)
            product = isinstance(step, ProductStep) and not step.relu
            if product and self._only_reader(value, index) and inputs[0] != inputs[1]:
                fresh = place
        self.steps[index] = SumStep(inputs, fresh)

    def _standardization(self, index: int) -> tuple[maps.MapSource, int] | None:
        """Recognize :class:`~advnorm.models.Standardize` by the last of its four nodes."""
        chain = [index]
        for name in ("movedim", "div", "sub", "movedim"):
            node = self.nodes[chain[-1]]
            inner = chain[-1] != index and len(self.readers[chain[-1]]) != 1
            if node.function != name or inner or len(node.inputs) != 1 or node.kwargs:
                return None
            chain.append(node.inputs[0])
        last, div, sub, first, images = chain
        moves = self.nodes[last].args[1:], self.nodes[first].args[1:]
        constants = [self._vector(self.nodes[i]) for i in (sub, div)]
        if moves != ((-1, 1), (1, -1)) or None in constants:
            return None
        for value in (div, sub, first):
            del self.steps[value]
        mean, std = constants
        return lambda c: maps.map_of_standardization(c[mean], c[std]), self.value_of[images]

    def _vector(self, node: Node) -> int | None:
        """Return the constant that a node takes second, if it has one number a feature."""
        if len(node.args) != 2 or not isinstance(node.args[1], Ref):
            return None
        index = node.args[1].index
        constant = self.nodes[index].kind == "constant" and self.dims[index] == 1
        return index if constant else None

    def _input(self, node: Node) -> int:
        return self.value_of[node.inputs[0]]

    def _join(self, index: int, value: int) -> None:
        self.value_of[index], self.tail[value] = value, index

    def _only_reader(self, value: int, index: int) -> bool:
        return self.readers[self.tail[value]] == {index}

    def _features_first(self, step: ProductStep) -> bool:
        """Tell whether dimension 1 of what a layer returns are its features."""
        linear = isinstance(step.layer, nn.Linear)
        return not linear or self.dims[step.inputs[0]] == 2

    def _resolved(self, node: Node) -> tuple[Any, Any]:
        """Return arguments that refer to the values of steps."""
        resolved: tuple[Any, Any] = replaced(
            (node.args, dict(node.kwargs or {})), lambda r: Ref(self.value_of[r.index])
        )
        return resolved

    def _values(self, args: Any) -> tuple[int, ...]:
        refs = (ref.index for ref in refs_in(args))
        return tuple(dict.fromkeys(i for i in refs if i not in self.constants))

    @staticmethod
    def _is_identity(node: Node) -> bool:
        return node.kind == "layer" and node.operation.identity and len(node.inputs) == 1


def is_padded(layer: nn.Module) -> bool:
    """Tell whether a convolution sees values around its input."""
    if isinstance(layer, nn.Linear):
        return False
    return layer.padding not in ("valid", (0,) * len(layer.kernel_size))  # type: ignore[arg-type]


def _is_sum(node: Node) -> bool:
    """Tell whether a node adds two values that depend on the images."""
    refs = [arg for arg in node.args if isinstance(arg, Ref)]
    return len(node.args) == len(refs) == len(node.inputs) == 2 and not node.kwargs
