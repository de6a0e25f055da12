"""Backward passes over the graph of a model: from any node to the images.

:class:`Backward` walks a batch forward once with interval bounds, keeping what each node
was called with, and then takes rows of any node back, node by node in reverse order; where
a value was used twice, the coefficients that arrive add up. A layer that has an interval
rule alone ends the way: its rows are bounded by its own box. So do images that are only
standardized, once all rows have arrived there: their box is exact.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from advnorm.bounds import linear_rules, linear_table
from advnorm.bounds.box import Box
from advnorm.bounds.concretize import least
from advnorm.bounds.exact_intervals import shallow
from advnorm.bounds.graph import Graph, Node, walk
from advnorm.bounds.interval import enclosed, named
from advnorm.bounds.linear_rules import Rows
from advnorm.bounds.rounding import is_counted, of_images, widened


class Call(NamedTuple):
    """What a node was called with, boxes in the place of its inputs."""

    node: Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def box(self) -> Box:
        """The box of a layer's input."""
        found = self.args[0]
        assert isinstance(found, Box)
        return found


Tighten = Callable[["Backward", Node, Box], Box]


class Backward:
    """The bounds of one batch, and backward passes from any node that they cover.

    ``tighten`` may narrow the box of the input of a layer whose rule needs one.
    """

    def __init__(
        self, graph: Graph, images: Box, *, tighten: Tighten | None = None
    ) -> None:
        self.graph = graph
        self.shallow = shallow(graph)
        self.calls: dict[int, Call] = {}
        self._counted = is_counted(images)
        images = widened(images, of_images(images)) if self._counted else images
        self.boxes: dict[int, Box] = {0: images}
        self.errors: dict[int, Tensor] = {}
        self._prepared: dict[int, Any] = {}
        self._tighten = tighten
        self._index = {id(node): index for index, node in enumerate(graph.nodes)}
        walk(graph, images, self._forward)

    def widest(self) -> int:
        """Return the number of entries a sample of the largest value so far."""
        return max(box.shape[1:].numel() for box in self.boxes.values())

    def least(self, start: int, rows: Rows) -> Tensor:
        """Return lower bounds of linear forms of a node's value: ``(rows, batch)``."""
        waiting, bias = {start: rows.coefficients}, rows.bias
        for index in range(start, 0, -1):
            if index in waiting:
                a = waiting.pop(index)
                if self._is_images(index) and not waiting:
                    return least(self.boxes[index], Rows(a, bias))
                found, more = self._step(index, a)
                bias = bias + more - self.error(index, a)
                for source, a in found:
                    waiting[source] = waiting[source] + a if source in waiting else a
        return least(self.boxes[0], Rows(waiting[0], bias)) if waiting else bias

    def error(self, index: int, a: Tensor) -> Tensor | float:
        """Return how far rounding of a node's value takes rows of it off."""
        if index not in self.errors:
            return 0.0
        error = self.errors[index]
        spread = range(3, a.ndim) if error.shape[2:].numel() == 1 else ()
        size = a.abs().sum(tuple(spread)) if spread else a.abs()
        return linear_rules.inner(size, error.flatten(1) if spread else error)

    def _is_images(self, index: int) -> bool:
        """Tell whether a node's set is that of the images, only scaled and moved."""
        here, images = (self.boxes[i].shape[1:].numel() for i in (index, 0))
        return index in self.shallow.boxes and here == images  # else some are repeated

    def prepared(self, index: int) -> Any:
        """Return what a layer's rule needs besides the rows, made once a batch."""
        if index not in self._prepared:
            call = self.calls[index]
            with named(call.node):
                self._prepared[index] = linear_table.prepare(call.node.layer, call.box)
        return self._prepared[index]

    def _forward(self, node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Box:
        index = self._index[id(node)]
        if self._tighten and node.kind == "layer" and linear_table.is_relaxed(node.layer):
            args = (self._tighten(self, node, args[0]), *args[1:])
        self.calls[index] = Call(node, args, kwargs)
        self.boxes[index], error = enclosed(node, args, kwargs, counted=self._counted)
        if error is not None:
            self.errors[index] = error
        return self.boxes[index]

    def _step(self, index: int, a: Tensor) -> tuple[list[tuple[int, Tensor]], Tensor]:
        """Take rows of a node to its inputs."""
        node, args, kwargs = call = self.calls[index]
        if node.kind == "function":
            with named(node):
                several, bias = linear_table.through_function(node, args, kwargs, a)
            return list(zip(node.inputs, several, strict=True)), bias
        rule = linear_table.RULES.get(type(node.layer))
        if rule is None:
            zero = a.new_zeros(a.shape[:2])
            return [], least(self.boxes[index], Rows(a, zero))
        given = self.prepared(index)
        with named(node):
            found = rule(node.layer, a, call.box.shape, given)
        return [(node.inputs[0], found.coefficients)], found.bias
