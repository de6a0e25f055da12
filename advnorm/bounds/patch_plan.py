"""Which nodes of a backward pass take patches, and where the patches lie.

A pass begins at some entries of a map, patches of one entry, and goes on as patches while
they are smaller than the map: through convolutions, poolings, norms, activations, and
through sums, whose branches meet again in one patch that holds both. Anything else takes
whole maps, and so does all that comes behind it.
"""

from dataclasses import dataclass, field

from advnorm.bounds import patches
from advnorm.bounds.backward import Backward
from advnorm.bounds.box import Box
from advnorm.bounds.graph import Node
from advnorm.bounds.operations import Call
from advnorm.bounds.receptive_field import ReceptiveField

WHOLE = 0.8
"""Share of a map from which on a patch is not worth it."""


@dataclass
class PatchPlan:
    """The fields of the nodes of a pass; ``None`` is a whole map."""

    fields: dict[int, ReceptiveField | None] = field(default_factory=dict)
    largest: int = 1
    """The number of coefficients of one entry at the largest node."""

    @property
    def is_whole(self) -> bool:
        """Whether any node takes whole maps."""
        return None in self.fields.values()


def is_sum(call: Call) -> bool:
    """Tell whether a call adds two values of one shape."""
    boxes = [value for value in call.args if isinstance(value, Box)]
    both = len(boxes) == len(call.args) == 2 and not call.kwargs
    return both and boxes[0].shape == boxes[1].shape


def plan_patches(backward: Backward, source: int) -> PatchPlan:
    """Plan the pass from entries of a node's value back to the images."""
    plan = PatchPlan({source: ReceptiveField(tuple(backward.boxes[source].shape[2:]))})
    waiting = {source}
    for index in range(source, 0, -1):
        if index not in waiting:
            continue
        waiting.remove(index)
        box, here = backward.boxes[index], plan.fields[index]
        ends = backward.is_images(index) and not waiting
        before = here and _before(backward, index, here)
        if here and not (_is_worth_it(here, box) and (before or ends)):
            here = before = plan.fields[index] = None
        plan.largest = max(plan.largest, _size(here, box))
        if ends:
            break
        for number in backward.graph.nodes[index].inputs:
            seen = number in plan.fields
            plan.fields[number] = _merged(plan.fields[number], before) if seen else before
            waiting.add(number)
    if 0 in waiting and (here := plan.fields[0]):
        plan.fields[0] = here if _is_worth_it(here, backward.boxes[0]) else None
    return plan


def _size(here: ReceptiveField | None, box: Box) -> int:
    """Return the number of coefficients of an entry at a node."""
    if here is None:
        return box.shape[1:].numel()
    return box.shape[1] * here.size[0] * here.size[1]


def _is_worth_it(field: ReceptiveField, box: Box) -> bool:
    height, width = box.shape[2:]
    return field.size[0] * field.size[1] < WHOLE * height * width


def _before(backward: Backward, index: int, here: ReceptiveField) -> ReceptiveField | None:
    """Return the field in the inputs of a node, if patches go through it."""
    node, call = backward.graph.nodes[index], backward.calls[index]
    if node.operation.backward is None or len(call.boxes[0].shape) != 4:
        return None
    window = patches.window_of(node.target)
    if window is not None:
        return here.before(window)
    return here if _keeps_places(node, call) else None


def _keeps_places(node: Node, call: Call) -> bool:
    """Tell whether each entry depends on one entry of each input, at the same place."""
    kinds = node.operation
    if kinds.identity or kinds.channel_affine is not None or kinds.relaxation is not None:
        return True
    return node.function in ("add", "iadd") and is_sum(call)


def _merged(
    first: ReceptiveField | None, other: ReceptiveField | None
) -> ReceptiveField | None:
    """Return the field of two branches that meet."""
    if not first or not other or first.stride != other.stride:
        return None
    return first.joined(other)
