r"""Margins that hold for every admissible image, and verdicts that follow from them.

A margin is a lower bound on :math:`z_y(x') - z_j(x')` for all :math:`x'` of the threat. An
image is certified where every margin is above the rounding slack.

**The slack.** Bounds are computed in floating point of unit roundoff u, and so are the
logits that they speak of. Both are sums of terms that the magnitudes of the logits'
interval bounds measure, :math:`M_j = \max |z_j|`, and their rounding errors are small
multiples of :math:`u (M_y + M_j)`. A verdict therefore subtracts

.. math:: \tau_j = 512\, u\, (M_y + M_j),

and the tests hold float32 margins of random networks to a quarter of it, against points in
float64. It is measured, not proved: a worst-case bound grows with the product of the
weights' norms and is useless.
"""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.certify.box import Box, InputSet, around
from advnorm.certify.crown import crown, crown_ibp
from advnorm.certify.graph import Graph, trace
from advnorm.certify.interval import Bounded, bounded, boxes
from advnorm.certify.memory import keep_freed_memory
from advnorm.certify.thin import Thin, hull, thin
from advnorm.registry import Registry

Method = Callable[[Graph, Box, Tensor], Bounded]
METHODS: Registry[Method] = Registry("certificate")
SLACK = 512
"""Units of roundoff that a verdict subtracts, times the magnitude of the logits."""
_TOGETHER = {"ibp": 1000, "crown-ibp": 200, "crown": 50}
_ENTRIES = {"ibp": 2**21, "crown-ibp": 2**22, "crown": 2**22}
"""Most images of a walk, and most entries of its largest value, rows of all images."""


@METHODS.register("ibp")
def ibp(graph: Graph, images: Box, labels: Tensor) -> Bounded:
    """Interval bound propagation (Gowal et al., 2019): fast and loose."""
    return bounded(graph, images, labels)


@METHODS.register("crown-ibp")
def _crown_ibp(graph: Graph, images: Box, labels: Tensor) -> Bounded:
    """One linear backward pass over interval bounds (Zhang et al., 2020)."""
    return crown_ibp(graph, images, labels)


@METHODS.register("crown")
def _crown(graph: Graph, images: Box, labels: Tensor) -> Bounded:
    """Linear backward passes for every layer (Zhang et al., 2018): tight and slow."""
    return crown(graph, images, labels)


class Certificates(NamedTuple):
    """``certified`` of shape (batch,); margins and slack of shape (batch, classes)."""

    certified: Tensor
    margins: Tensor
    slack: Tensor


def bounds(
    model: nn.Module,
    clean: Tensor,
    threat: InputSet,
    labels: Tensor,
    *,
    method: str = "crown",
) -> Tensor:
    """Return lower bounds of all margins, shape (batch, classes); the label's column is 0.

    >>> from advnorm.threat import Linf
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> model[0].weight.data = torch.eye(2)
    >>> bounds(model, torch.tensor([[0.75, 0.0]]), Linf(0.25), torch.tensor([0])).tolist()
    [[0.0, 0.25]]

    Args:
        model: Maps images in the threat's bounds to logits. A norm that would use batch
            statistics is refused: what holds for an image must not depend on others.
        clean: Images, shape ``(batch, ...)``.
        threat: ``Linf`` or ``L2``.
        labels: One class number an image.
        method: ``"ibp"``, ``"crown-ibp"`` or ``"crown"``.
    """
    return _margins(_plan(model, clean, threat), clean, threat, labels, method)


def _plan(model: nn.Module, clean: Tensor, threat: InputSet) -> Thin:
    """Return the graph to walk: a smaller one where no gradient is asked for."""
    graph = trace(model)
    if torch.is_grad_enabled() or not len(clean):
        return Thin(graph, widest=0, outputs=0)
    if clean.device.type == "cpu":
        keep_freed_memory()
    return thin(graph, hull(clean, threat))


def _together(plan: Thin, count: int, method: str) -> int:
    """Return how many images to take together; few where it is not known how wide."""
    most = _TOGETHER[method]
    if not plan.widest:
        return min(most, 50)
    rows = 1 if method == "ibp" else plan.outputs
    most = max(1, min(most, _ENTRIES[method] // (plan.widest * rows)))
    return ceil(count / ceil(count / most))


def _margins(
    plan: Thin, clean: Tensor, threat: InputSet, labels: Tensor, method: str
) -> Tensor:
    bound, size = METHODS[method], _together(plan, len(clean), method)
    parts = zip(torch.split(clean, size), torch.split(labels, size), strict=True)
    return torch.cat([bound(plan.graph, around(x, threat), y).margins for x, y in parts])


def verify(
    model: nn.Module,
    clean: Tensor,
    threat: InputSet,
    labels: Tensor,
    *,
    method: str = "crown",
) -> Certificates:
    """Tell which images keep their label whatever the threat does, rounding included."""
    with torch.no_grad():
        plan = _plan(model, clean, threat)
        margins = _margins(plan, clean, threat, labels, method)
        slack = _slack(plan, clean, threat, labels)
        safe = (margins > slack).scatter(1, labels.unsqueeze(1), True)
    return Certificates(safe.all(1), margins, slack)


def _slack(plan: Thin, clean: Tensor, threat: InputSet, labels: Tensor) -> Tensor:
    """Return what rounding may cost each margin; see the module's text."""
    graph, found = plan.graph, []
    for x in torch.split(clean, _together(plan, len(clean), "ibp")):
        box = boxes(graph, around(x, threat), keep=False)[graph.output]
        found.append(box.centre.abs() + box.radius)
    size = torch.cat(found)
    own = size.gather(1, labels.unsqueeze(1))
    return SLACK * torch.finfo(size.dtype).eps / 2 * (own + size)
