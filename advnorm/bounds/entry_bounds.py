r"""Lower bounds of some entries of a map and of their negatives, by one backward pass.

Coefficients are patches where the plan says so (:mod:`.patch_plan`), else whole maps, of
one image then. Where the input of a ReLU is reached whose bounds are known, the forms are
concretized there: this costs little, and an entry that is sure to keep its sign already
needs no bounds that are better. Its forms go no further, with these bounds.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from advnorm.bounds import linear_forms, patches
from advnorm.bounds.backward import Backward
from advnorm.bounds.box import Box
from advnorm.bounds.concretize import concretize
from advnorm.bounds.interval import naming
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.patch_plan import PatchPlan, is_sum
from advnorm.bounds.receptive_field import Outputs, ReceptiveField

FEWER = 0.9
"""Share of the entries that may be left for the others to be dropped."""
BENDS = 2
"""Activations to pass before a check: behind one, forms are no tighter than intervals."""


def bound_entries(
    backward: Backward, plan: PatchPlan, source: int, outputs: Outputs, *, drop: bool
) -> Tensor:
    """Return lower bounds of entries and of their negatives: ``(2, entries)``.

    ``drop``: an entry whose sign is sure needs no better bounds.
    """
    box = backward.boxes[source]
    start = box.radius.new_zeros((2, len(outputs.sample), box.shape[1], 1, 1))
    signs = start.new_tensor([[1.0], [-1.0]]).expand(2, len(outputs.sample))
    places = outputs.channel.view(1, -1, 1, 1, 1).expand(2, -1, 1, 1, 1)
    start.scatter_(2, places, signs.view(2, -1, 1, 1, 1))
    walk = _Walk(backward, plan, outputs, torch.zeros_like(start[:, :, 0, 0, 0]))
    walk.arrive(source, start, ReceptiveField(tuple(box.shape[2:])))
    return walk.run(source, drop=drop)


@dataclass
class _Walk:
    """One pass: the entries that are still bounded, and their coefficients by node."""

    backward: Backward
    plan: PatchPlan
    outputs: Outputs
    bias: Tensor
    waiting: dict[int, Tensor] = field(default_factory=dict)

    def run(self, source: int, *, drop: bool) -> Tensor:
        bounds, bends = torch.zeros_like(self.bias), 0
        left = torch.arange(self.bias.shape[1], device=self.bias.device)
        for index in range(source, 0, -1):
            if index not in self.waiting:
                continue
            if self.backward.is_images(index) and len(self.waiting) == 1:
                break
            if drop and bends >= BENDS and self._is_worth_a_check(index):
                lower = self.concretized()
                sure = (lower >= 0).any(0)
                kept = (~sure).nonzero().squeeze(1)
                if len(kept) <= FEWER * len(left):
                    bounds = bounds.index_copy(1, left, lower)
                    left = left[kept]
                    self.keep(kept)
                    if not len(left):
                        return bounds
            operation = self.backward.graph.nodes[index].operation
            bends += operation.relaxation is not None
            self.step(index)
        return bounds.index_copy(1, left, self.concretized())

    def _is_worth_a_check(self, index: int) -> bool:
        """Tell whether a node has a tight box, and is not next to the end anyway."""
        is_near = index in self.backward.exact_nodes.exact
        return index in self.backward.tightened and not is_near

    def keep(self, kept: Tensor) -> None:
        """Go on with some of the entries."""
        self.outputs = Outputs(*(part[kept] for part in self.outputs))
        self.bias = self.bias[:, kept]
        self.waiting = {i: a.index_select(1, kept) for i, a in self.waiting.items()}

    def concretized(self) -> Tensor:
        """Return the bounds that the forms have in the boxes of their nodes."""
        bounds = self.bias
        for index, a in self.waiting.items():
            box = self.backward.tightened.get(index, self.backward.boxes[index])
            bounds = bounds + self._least(a, box, self.plan.fields[index])
        return bounds

    def step(self, index: int) -> None:
        """Take the coefficients of a node to its inputs."""
        node, here = self.backward.graph.nodes[index], self.plan.fields[index]
        a = self.waiting.pop(index)
        if here is None:
            rows = a.flatten(0, 1).unsqueeze(1)
            parts, more = self.backward.step(index, rows)
            self.bias = self.bias + (more - self.backward.error(index, rows)).view_as(
                self.bias
            )
            for number, part in parts:
                self._add(number, part.view(*a.shape[:2], *part.shape[2:]))
            return
        self.bias = self.bias - self._error(index, a, here)
        with naming(node):
            forms, before = self._through(index, LinearForms(a, self.bias), here)
        self.bias = forms.bias
        for number in node.inputs:
            self.arrive(number, forms.coefficients, before)

    def _through(
        self, index: int, rows: LinearForms, here: ReceptiveField
    ) -> tuple[LinearForms, ReceptiveField]:
        """Take patches through a node; the field is that of what comes out."""
        node, call = self.backward.graph.nodes[index], self.backward.calls[index]
        if is_sum(call):
            return rows, here
        if node.operation.identity:
            assert node.operation.backward is not None
            (forms,) = node.operation.backward(call, rows.coefficients, None)
            return LinearForms(forms.coefficients, rows.bias), here
        window, outputs = patches.window_of(node.target), self.outputs
        if window is None:
            prepared = self.backward.prepared(index)
            return patches.entrywise(rows, prepared, here, outputs), here
        before, (_, maps, *size) = here.before(window), call.box.shape
        if isinstance(node.target, nn.MaxPool2d):
            bounds = self.backward.prepared(index)
            return patches.through_max(window, bounds, rows, here, size, outputs), before
        kernel = patches.kernel_of(node.target, window, call.box.radius, maps)
        return patches.through(kernel, rows, before, size, outputs), before

    def _error(self, index: int, a: Tensor, here: ReceptiveField) -> Tensor | float:
        """Return what rounding of a node's value may cost patches."""
        error = self.backward.errors.get(index)
        if error is None:
            return 0.0
        if error.shape[2:].numel() == 1:  # one for each map
            each = error.flatten(1).expand(-1, a.shape[2])
            each = each[self.outputs.sample] if len(each) > 1 else each
            cost: Tensor = (a.abs().sum((3, 4)) * each).sum(2)
            return cost
        error = error.expand(len(error), *self.backward.boxes[index].shape[1:])
        return linear_forms.inner(a.abs(), here.cut(error, self.outputs))

    def _least(self, a: Tensor, box: Box, here: ReceptiveField | None) -> Tensor:
        """Return the least value of forms in the box of a node."""
        zero = torch.zeros_like(self.bias)
        if here is not None:
            box = patches.cut_box(box, here, self.outputs)
            return concretize(box, LinearForms(a, zero))
        rows = LinearForms(a.flatten(0, 1).unsqueeze(1), zero.view(-1, 1))
        return concretize(box, rows).view_as(zero)

    def arrive(self, index: int, a: Tensor, here: ReceptiveField) -> None:
        """Add coefficients to those that wait at a node."""
        there = self.plan.fields[index]
        if there is None:
            size = self.backward.boxes[index].shape[2:]
            a = here.pasted(a, self.outputs, size)
        else:
            a = here.widened(a, there)
        self._add(index, a)

    def _add(self, index: int, a: Tensor) -> None:
        self.waiting[index] = self.waiting[index] + a if index in self.waiting else a
