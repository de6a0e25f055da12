r"""Linear bounds of margins: ``crown-ibp`` and ``crown``.

Both bound the margins :math:`z_y - z_j` by one backward pass from the specification, so
that the last linear layer is folded into it. They differ in the bounds of the inputs of
activations, which the lines need:

- ``crown-ibp`` (Zhang et al., 2020) takes the interval bounds;
- ``crown`` (Zhang et al., 2018) takes backward passes for these as well, cut with the
  intervals that follow from the tighter bounds before them.

A margin is the larger of the linear bound and of the interval bound, which the forward walk
has left at the last layer: lines alone are looser than intervals on networks of certified
training, whose units are mostly off or unsure.
"""

import torch
from torch import Tensor

from advnorm.bounds.backward import Backward
from advnorm.bounds.box import Box
from advnorm.bounds.budget import fitting
from advnorm.bounds.graph import Graph, logits_node
from advnorm.bounds.intermediate import tighten
from advnorm.bounds.interval import Margins, margins_at
from advnorm.bounds.linear_forms import LinearForms


def crown_ibp_margins(graph: Graph, images: Box, labels: Tensor) -> Margins:
    """One linear backward pass over interval bounds (Zhang et al., 2020).

    Never below the interval bounds of the margins themselves.

    Differentiable in the weights. Where the box holds the clean images, batch norms follow
    sridhar2021, Alg. 1, and the clean logits come with the margins.
    """
    return _larger(Backward(graph, images), labels)


def crown_ibp_and_ibp_margins(
    graph: Graph, images: Box, labels: Tensor
) -> tuple[Margins, Margins]:
    """Return the linear bounds and the interval bounds from one pass over the intervals.

    Training mixes them; two passes would move the running statistics twice.
    """
    backward = Backward(graph, images)
    return _linear(backward, labels), _interval(backward, labels)


def crown_margins(graph: Graph, images: Box, labels: Tensor) -> Margins:
    """Linear backward passes for every layer (Zhang et al., 2018): tight and slow."""
    return _larger(Backward(graph, images, tighten=tighten), labels)


def _larger(backward: Backward, labels: Tensor) -> Margins:
    """Return the larger bound of each margin; both hold."""
    linear, interval = _linear(backward, labels), _interval(backward, labels)
    return Margins(torch.maximum(linear.lower, interval.lower), linear.logits)


def _interval(backward: Backward, labels: Tensor) -> Margins:
    """Return the interval bounds that the forward walk has left at the last layer."""
    last = logits_node(backward.graph)
    if backward.boxes[last].shape != backward.boxes[backward.graph.output].shape:
        last = backward.graph.output
    output, call = backward.boxes[last], backward.calls.get(last)
    before = call.args[0] if call and isinstance(call.args[0], Box) else output
    return margins_at(backward.graph.nodes[last], before, output, labels)


def _linear(backward: Backward, labels: Tensor) -> Margins:
    """Return the bounds of one backward pass from the differences of the logits."""
    logits = backward.boxes[backward.graph.output]
    if len(logits.shape) != 2 or labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            "margins are of logits (batch, classes) and one class number per image, not of "
            f"{tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    count, classes = logits.shape
    wrong = torch.arange(classes - 1, device=labels.device).unsqueeze(1)
    wrong = wrong + (wrong >= labels)  # (classes - 1, batch): all but the label
    rows = logits.radius.new_zeros((classes - 1, count, classes))
    rows.scatter_(2, wrong.unsqueeze(2), -1)
    rows.scatter_(2, labels.expand_as(wrong).unsqueeze(2), 1)
    some = fitting(count * backward.widest(), rows)
    lower = torch.cat(
        [
            backward.lower_bounds(
                backward.graph.output, LinearForms(part, part.new_zeros(part.shape[:2]))
            )
            for part in torch.split(rows, some)
        ]
    )
    margins = lower.new_zeros((count, classes)).scatter(1, wrong.T, lower.T)
    return Margins(margins, logits.clean)
