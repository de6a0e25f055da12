"""Margins that hold for every admissible image, by each method.

A margin is a lower bound on ``z_y(x') - z_j(x')`` for all ``x'`` of the threat. The
verdicts that follow are in :mod:`advnorm.bounds.verdicts`.
"""

from collections.abc import Callable
from math import ceil, isfinite

import torch
from torch import Tensor, nn

from advnorm.allocator import keep_freed_memory
from advnorm.bounds.box import Box, InputSet, around
from advnorm.bounds.crown import crown, crown_ibp
from advnorm.bounds.graph import Graph
from advnorm.bounds.independence import refuse_others
from advnorm.bounds.interval import Bounded, bounded
from advnorm.bounds.layer_checks import is_plain
from advnorm.bounds.precision import exact_products
from advnorm.bounds.simplify import Thin, hull, thin
from advnorm.bounds.tracing import trace
from advnorm.registry import Registry

Method = Callable[[Graph, Box, Tensor], Bounded]
METHODS: Registry[Method] = Registry("certificate")
_TOGETHER = {"ibp": 1000, "crown-ibp": 200, "crown": 50}
"""Most images of a walk; another method is taken to cost as much as crown."""
_ENTRIES = 2**22
"""Most entries of a walk's largest value, rows of all images."""


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
    with exact_products(clean.device):
        planned = plan(model, clean, threat, labels)
        return margins(planned, clean, threat, labels.long(), method)


def plan(model: nn.Module, clean: Tensor, threat: InputSet, labels: Tensor) -> Thin:
    """Return the graph to walk: a smaller one where no gradient is asked for."""
    _check(clean, threat, labels)
    graph = trace(model)
    if not len(clean):
        return Thin(graph, widest=0, outputs=0)
    keep_freed_memory(clean)
    with torch.no_grad():
        smaller = thin(graph, hull(clean, threat))  # the walk refuses what mixes samples
        refuse_others(model, graph, clean, threat, labels)
    return Thin(graph, widest=0, outputs=0) if torch.is_grad_enabled() else smaller


def _check(clean: Tensor, threat: InputSet, labels: Tensor) -> None:
    """Refuse images outside of the set that they are the middle of, and other labels."""
    if not is_plain(clean) or clean.is_complex():
        raise ValueError(
            f"images are a plain tensor of real numbers, not {type(clean).__name__} of "
            f"type {clean.dtype}: images.as_subclass(torch.Tensor) makes one"
        )
    numbers = not labels.is_floating_point() and labels.dtype != torch.bool
    if labels.shape != clean.shape[:1] or not numbers:
        raise ValueError(
            f"{len(clean)} images want one class number each, not labels of shape "
            f"{tuple(labels.shape)} and type {labels.dtype}"
        )
    if not clean.numel():
        return
    (low, high), images = threat.bounds, clean.detach()
    least, most = float(images.amin()), float(images.amax())
    dtype = images.dtype if images.is_floating_point() else torch.get_default_dtype()
    near = 16 * torch.finfo(dtype).eps * max(1, abs(low), abs(high))
    finite = isfinite(least) and isfinite(most)
    if not finite or not low - near <= least <= most <= high + near:
        raise ValueError(
            f"images reach from {least:g} to {most:g}, beyond the threat's bounds {low:g} "
            f"and {high:g}: scale them, or put the scaling into the model"
        )


def together(thinned: Thin, count: int, method: str) -> int:
    """Return how many images to take together; few where it is not known how wide."""
    most = _TOGETHER.get(method, _TOGETHER["crown"])
    if not thinned.widest:
        return min(most, 50)
    rows = 1 if method == "ibp" else thinned.outputs
    most = max(1, min(most, _ENTRIES // (thinned.widest * rows)))
    return ceil(count / ceil(count / most))


def margins(
    thinned: Thin, clean: Tensor, threat: InputSet, labels: Tensor, method: str
) -> Tensor:
    """Return :func:`bounds` of a planned model, as many images at a time as suit."""
    bound, size = METHODS[method], together(thinned, len(clean), method)
    parts = zip(torch.split(clean, size), torch.split(labels, size), strict=True)
    return torch.cat([bound(thinned.graph, around(x, threat), y).margins for x, y in parts])
