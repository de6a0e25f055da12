"""Lower bounds of margins, by each method.

A margin is ``z_y(x') - z_j(x')``; its bound holds for all ``x'`` of the threat. The
verdicts that follow are in :mod:`advnorm.bounds.verdicts`.
"""

from collections.abc import Callable
from contextlib import nullcontext
from math import ceil, isfinite

import torch
from torch import Tensor, nn

from advnorm.allocator import freed_memory_kept, keep_freed_memory
from advnorm.bounds import budget
from advnorm.bounds.box import Box, InputSet, input_box
from advnorm.bounds.crown import crown_ibp_margins, crown_margins
from advnorm.bounds.graph import Graph
from advnorm.bounds.independence import check_independence
from advnorm.bounds.interval import Margins, ibp_margins
from advnorm.bounds.layer_checks import is_plain
from advnorm.bounds.precision import exact_products
from advnorm.bounds.simplify import SimplifiedGraph, hull, simplify
from advnorm.bounds.tracing import trace
from advnorm.registry import Registry

Method = Callable[[Graph, Box, Tensor], Margins]
METHODS: Registry[Method] = Registry("certificate")
"""Each maps a graph, a box of inputs and labels to lower bounds of the margins."""
_BATCH_SIZES = {"ibp": 250, "crown-ibp": 50, "crown": 50}
"""Most images of a pass; another method is taken to cost as much as crown."""

METHODS.register("ibp")(ibp_margins)
METHODS.register("crown-ibp")(crown_ibp_margins)
METHODS.register("crown")(crown_margins)


def margin_bounds(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: InputSet,
    *,
    method: str = "crown",
    memory: float = budget.MEGABYTES,
) -> Tensor:
    """Return lower bounds of all margins, shape (batch, classes); the label's column is 0.

    A bound above 0 is no proof yet, as it was rounded: :func:`advnorm.bounds.certify`
    subtracts what rounding may cost. Differentiable in the model's parameters.

    >>> from advnorm.threat import Linf
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> model[0].weight.data = torch.eye(2)
    >>> image, label = torch.tensor([[0.75, 0.0]]), torch.tensor([0])
    >>> margin_bounds(model, image, label, Linf(0.25)).tolist()
    [[0.0, 0.25]]

    Args:
        model: Maps images in the threat's bounds to logits. A norm that would use batch
            statistics is refused: what holds for an image must not depend on others.
        images: Clean images, shape ``(batch, ...)``.
        labels: One class number per image.
        threat: ``Linf`` or ``L2``.
        method: ``"ibp"``, ``"crown-ibp"`` or ``"crown"``.
        memory: Megabytes that the bounds may take, about, beside model and images:
            images and rows are split to fit.
    """
    with exact_products(images.device), budget.limited(memory):
        graph = prepare_graph(model, images, labels, threat)
        return compute_margins(graph, images, labels.long(), threat, method)


def prepare_graph(
    model: nn.Module, images: Tensor, labels: Tensor, threat: InputSet
) -> SimplifiedGraph:
    """Check model, images and labels, and return the graph to bound.

    It is simplified where no gradient is asked for.
    """
    _check(images, labels, threat)
    graph = trace(model)
    if not len(images):
        return SimplifiedGraph(graph, widest=0, outputs=0)
    keep_freed_memory(images)
    with torch.no_grad():
        smaller = simplify(graph, hull(images, threat))  # refuses what mixes samples
        check_independence(model, graph, images, labels, threat)
    if torch.is_grad_enabled():
        return SimplifiedGraph(graph, widest=0, outputs=0)
    return smaller


def _check(images: Tensor, labels: Tensor, threat: InputSet) -> None:
    """Refuse images outside of the threat's bounds, and labels that are no classes."""
    if not is_plain(images) or images.is_complex():
        raise ValueError(
            f"images must be a plain tensor of real numbers, not {type(images).__name__} "
            f"of type {images.dtype}: images.as_subclass(torch.Tensor) makes one"
        )
    numbers = not labels.is_floating_point() and labels.dtype != torch.bool
    if labels.shape != images.shape[:1] or not numbers:
        raise ValueError(
            f"{len(images)} images need one class number each, not labels of shape "
            f"{tuple(labels.shape)} and type {labels.dtype}"
        )
    if not images.numel():
        return
    (low, high), images = threat.bounds, images.detach()
    smallest, largest = float(images.amin()), float(images.amax())
    dtype = images.dtype if images.is_floating_point() else torch.get_default_dtype()
    near = 16 * torch.finfo(dtype).eps * max(1, abs(low), abs(high))
    finite = isfinite(smallest) and isfinite(largest)
    if not finite or not low - near <= smallest <= largest <= high + near:
        raise ValueError(
            f"images reach from {smallest:g} to {largest:g}, beyond the threat's bounds "
            f"{low:g} and {high:g}: scale them, or put the scaling into the model"
        )


def batch_size(graph: SimplifiedGraph, images: Tensor, method: str) -> int:
    """Return how many images to bound at a time; few where the widest value is unknown."""
    most = _BATCH_SIZES.get(method, _BATCH_SIZES["crown"])
    if not graph.widest:
        return min(most, 50)
    rows = 1 if method == "ibp" else graph.outputs
    most = min(most, budget.fitting(graph.widest * rows, images))
    return ceil(len(images) / ceil(len(images) / most))


def compute_margins(
    graph: SimplifiedGraph, images: Tensor, labels: Tensor, threat: InputSet, method: str
) -> Tensor:
    """Return :func:`margin_bounds` of a prepared model, in batches of a suitable size."""
    bound, size = METHODS[method], batch_size(graph, images, method)
    batches = zip(torch.split(images, size), torch.split(labels, size), strict=True)
    with nullcontext() if method == "ibp" else freed_memory_kept(images):
        return torch.cat(
            [bound(graph.graph, input_box(x, threat), y).lower for x, y in batches]
        )
