"""Backward passes over the graph of a model: from any node to the images.

:class:`Backward` walks a batch forward once with interval bounds, keeping what each node
was called with, and then takes linear forms of any node back, node by node in reverse
order; where a value was used twice, the coefficients that arrive add up. An operation that
has an interval rule alone ends the pass: its forms are concretized in its own box. So do
images that are only standardized, once all forms have arrived there: their box is exact.
"""

from collections.abc import Callable, Mapping
from copy import copy
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from advnorm.bounds import linear_forms
from advnorm.bounds.box import Box
from advnorm.bounds.concretize import concretize
from advnorm.bounds.exact_intervals import exact_nodes
from advnorm.bounds.graph import Graph, Node, walk
from advnorm.bounds.interval import enclose, naming
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations import Call
from advnorm.bounds.rounding import counts_rounding, image_error, widen

Tighten = Callable[["Backward", Node, Box], Box]


class Backward:
    """The interval bounds of one batch, and backward passes from any node.

    ``tighten`` may narrow the box of the input of a layer whose rule needs one.
    """

    def __init__(
        self, graph: Graph, images: Box, *, tighten: Tighten | None = None
    ) -> None:
        self.graph = graph
        self.exact_nodes = exact_nodes(graph)
        self.calls: dict[int, Call] = {}
        self._counted = counts_rounding(images)
        images = widen(images, image_error(images)) if self._counted else images
        self.boxes: dict[int, Box] = {0: images}
        self.tightened: dict[int, Box] = {}
        """Boxes of the inputs of activations, where these are narrower."""
        self.errors: dict[int, Tensor] = {}
        self._prepared: dict[int, Any] = {}
        self._tighten = tighten
        self._index = {id(node): index for index, node in enumerate(graph.nodes)}
        walk(graph, images, self._forward)

    def of_sample(self, index: int) -> "Backward":
        """Return the same of one sample alone."""
        if len(self.boxes[0].radius) == 1:
            return self
        rows = slice(index, index + 1)
        part = copy(self)
        part.boxes = {i: box.rows(rows) for i, box in self.boxes.items()}
        part.tightened = {i: box.rows(rows) for i, box in self.tightened.items()}
        part.errors = {i: e[rows] if len(e) > 1 else e for i, e in self.errors.items()}
        part.calls = {
            i: Call(call.target, *_rows_of((call.args, call.kwargs), rows))
            for i, call in self.calls.items()
        }
        part._prepared = {}
        return part

    def widest(self) -> int:
        """Return the number of entries per sample of the largest value so far."""
        return max(box.shape[1:].numel() for box in self.boxes.values())

    def lower_bounds(self, start: int, forms: LinearForms) -> Tensor:
        """Return lower bounds of linear forms of a node's value: ``(rows, batch)``."""
        waiting, bias = {start: forms.coefficients}, forms.bias
        for index in range(start, 0, -1):
            if index in waiting:
                a = waiting.pop(index)
                if self.is_images(index) and not waiting:
                    return concretize(self.boxes[index], LinearForms(a, bias))
                parts, more = self.step(index, a)
                bias = bias + more - self.error(index, a)
                for source, part in parts:
                    waiting[source] = waiting[source] + part if source in waiting else part
        return concretize(self.boxes[0], LinearForms(waiting[0], bias)) if waiting else bias

    def error(self, index: int, a: Tensor) -> Tensor | float:
        """Return the error of linear forms of a node's value that rounding of it causes."""
        if index not in self.errors:
            return 0.0
        error = self.errors[index]
        spread = range(3, a.ndim) if error.shape[2:].numel() == 1 else ()
        size = a.abs().sum(tuple(spread)) if spread else a.abs()
        return linear_forms.inner(size, error.flatten(1) if spread else error)

    def is_images(self, index: int) -> bool:
        """Tell whether a node's set is that of the images, only scaled and moved."""
        here, images = (self.boxes[i].shape[1:].numel() for i in (index, 0))
        return index in self.exact_nodes.boxes and here == images  # else some are repeated

    def prepared(self, index: int) -> Any:
        """Return what an operation's rule needs besides the forms, made once a batch."""
        if index not in self._prepared:
            node, call = self.graph.nodes[index], self.calls[index]
            with naming(node):
                prepare = node.operation.prepare
                self._prepared[index] = prepare and prepare(call.target, call.box)
        return self._prepared[index]

    def _forward(self, node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Box:
        index = self._index[id(node)]
        if self._tighten and node.operation.needs_bounds:
            box = self._tighten(self, node, args[0])
            self.tightened[node.inputs[0]] = box
            args = (box, *args[1:])
        self.calls[index] = call = Call(node.target, args, kwargs)
        self.boxes[index], error = enclose(node, call, counted=self._counted)
        if error is not None:
            self.errors[index] = error
        return self.boxes[index]

    def step(self, index: int, a: Tensor) -> tuple[list[tuple[int, Tensor]], Tensor]:
        """Take coefficients of a node to its inputs; the last is what adds to the bias."""
        node = self.graph.nodes[index]
        if node.operation.backward is None:
            zero = a.new_zeros(a.shape[:2])
            return [], concretize(self.boxes[index], LinearForms(a, zero))
        prepared = self.prepared(index)
        with naming(node):
            forms = node.operation.backward(self.calls[index], a, prepared)
        bias = reduce(add, (form.bias for form in forms))
        coefficients = (form.coefficients for form in forms)
        return list(zip(node.inputs, coefficients, strict=True)), bias


def _rows_of(value: Any, rows: slice) -> Any:
    """Return nested arguments with some samples of their boxes."""
    if isinstance(value, Box):
        return value.rows(rows)
    if isinstance(value, tuple | list):
        return type(value)(_rows_of(item, rows) for item in value)
    if isinstance(value, dict):
        return {key: _rows_of(item, rows) for key, item in value.items()}
    return value
