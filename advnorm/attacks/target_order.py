r"""Which wrong classes a targeted attack aims at first.

The published order is that of the clean logits. MALT (Melamed et al., 2024,
https://arxiv.org/abs/2407.02240) takes the model as linear around the image :math:`x` of
class :math:`y`, and sorts by the distance to the boundary of each class j, its margin over
the size of the margin's gradient:

.. math:: \frac{z_y(x) - z_j(x)}{\|\nabla z_y(x) - \nabla z_j(x)\|_*}

The norm is the dual of the threat's here, so for a linear model the order is exact: the L1
norm for Linf balls, L2 for L2, Linf for L1. It is for models with many classes, where the
likeliest nine need not be the nearest nine.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from advnorm.attacks.targets import LogitsFn
from advnorm.threat import Threat

CANDIDATES = 100
"""Classes that MALT sorts, the likeliest; each costs a backward pass."""
_DUAL = {"linf": 1.0, "l2": 2.0, "l1": torch.inf}

TargetOrder = Callable[[LogitsFn, Tensor, Tensor, Threat], tuple[Tensor, Tensor]]
"""``order(logits_fn, clean, labels, threat) -> (clean logits, wrong classes in turn)``."""


def likeliest(
    logits_fn: LogitsFn, clean: Tensor, labels: Tensor, threat: Threat
) -> tuple[Tensor, Tensor]:
    """Sort the wrong classes by the clean logits, as published; costs a forward pass."""
    with torch.no_grad():
        logits = logits_fn(clean)
    return logits, _by_logits(logits, labels)


def malt(
    logits_fn: LogitsFn, clean: Tensor, labels: Tensor, threat: Threat
) -> tuple[Tensor, Tensor]:
    """Sort the likeliest wrong classes by their distance to first order, nearest first."""
    x = clean.detach().requires_grad_()
    with torch.enable_grad():
        logits = logits_fn(x)
        classes = _by_logits(logits.detach(), labels)[:, :CANDIDATES]
        margins = logits.gather(1, labels[:, None]) - logits.gather(1, classes)
        totals = margins.sum(0).unbind()
    sizes = [_size(total, x, _DUAL[threat.name]) for total in totals]
    logits, margins = logits.detach(), margins.detach()
    if not sizes:
        return logits, classes
    slope = torch.stack(sizes, 1).clamp_(min=torch.finfo(margins.dtype).tiny)
    nearest = (margins / slope).argsort(dim=1, stable=True)
    return logits, classes.gather(1, nearest)


def _by_logits(logits: Tensor, labels: Tensor) -> Tensor:
    wrong = logits.scatter(1, labels[:, None], -torch.inf)
    return wrong.argsort(dim=1, descending=True, stable=True)[:, :-1]


def _size(total: Tensor, x: Tensor, norm: float) -> Tensor:
    """Return the size of the gradient of each sample's part of a sum."""
    (grad,) = torch.autograd.grad(total, x, retain_graph=True)
    size: Tensor = torch.linalg.vector_norm(grad.flatten(1), norm, dim=1)
    return size


ORDERS: dict[str, TargetOrder] = {"likeliest": likeliest, "malt": malt}
"""The orders by name."""
