r"""Verdicts that follow from margins, rounding included.

An image is certified where every margin is above the rounding slack.

**The slack.** Bounds are computed in floating point of unit roundoff u, and so are the
logits that they speak of. A logit is a sum of terms, which together are at most
:math:`M_j = \sum_i |W_{ji}| \max |h_i| + |b_j|` over the set (and go through what is
behind the last linear layer: :mod:`advnorm.bounds.magnitudes`), and its rounding error is a
small multiple of :math:`u M_j`, unless larger terms have cancelled out in an earlier layer.
A verdict therefore subtracts

.. math:: \tau_j = 512\, u\, (M_y + M_j),

and the tests hold float32 margins of random networks to a quarter of it, against points in
float64. It is measured, not proved: a worst-case bound grows with the product of the
weights' norms and is useless.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from advnorm.bounds.box import InputSet, around
from advnorm.bounds.interval import bounded_rounded
from advnorm.bounds.methods import METHODS, margins, plan, together
from advnorm.bounds.precision import exact_products
from advnorm.bounds.simplify import Thin

_CHEAPEST_FIRST = ("ibp", "crown-ibp", "crown")


class Certificates(NamedTuple):
    """``certified`` of shape (batch,); margins and slack of shape (batch, classes)."""

    certified: Tensor
    margins: Tensor
    slack: Tensor


def verify(
    model: nn.Module,
    clean: Tensor,
    threat: InputSet,
    labels: Tensor,
    *,
    method: str = "crown",
) -> Certificates:
    """Tell which images keep their label whatever the threat does, with all margins."""
    clean, labels = _tensors(clean, labels)
    with torch.no_grad(), exact_products(clean.device):
        thinned = plan(model, clean, threat, labels)
        found, slack = _intervals(thinned, clean, threat, labels)
        if method != "ibp":
            found = margins(thinned, clean, threat, labels, method)
        return Certificates(_above(found, slack, labels), found, slack)


def certified(
    model: nn.Module,
    clean: Tensor,
    threat: InputSet,
    labels: Tensor,
    *,
    method: str = "crown",
) -> Tensor:
    """Tell which images ``method``, or a cheaper one, certifies; shape (batch,).

    The cheapest is asked first, and the next about what is left. This is much faster than
    :func:`verify`, and never certifies less.
    """
    dearer_ones = _after_ibp(method)
    clean, labels = _tensors(clean, labels)
    if not len(clean):
        return labels.new_zeros(0, dtype=torch.bool)
    with torch.no_grad(), exact_products(clean.device):
        thinned = plan(model, clean, threat, labels)
        found, slack = _intervals(thinned, clean, threat, labels)
        sure = _above(found, slack, labels)
        for dearer in dearer_ones:
            left = (~sure).nonzero().squeeze(1)
            if not len(left):
                break
            found = margins(thinned, clean[left], threat, labels[left], dearer)
            sure[left] = _above(found, slack[left], labels[left])
        return sure


def _tensors(clean: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Take arrays and lists for tensors, and any integers for class numbers."""
    try:
        clean, labels = (torch.as_tensor(values) for values in (clean, labels))
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            "images and labels are tensors, NumPy arrays or lists of numbers, not "
            f"{type(clean).__name__} and {type(labels).__name__}"
        ) from None
    is_class = not labels.is_floating_point() and labels.dtype != torch.bool
    return clean, labels.long() if is_class else labels


def _after_ibp(method: str) -> tuple[str, ...]:
    """Return what to ask after the intervals, up to ``method``."""
    METHODS[method]  # refuses an unknown name
    if method not in _CHEAPEST_FIRST:
        return (method,)
    return _CHEAPEST_FIRST[1 : _CHEAPEST_FIRST.index(method) + 1]


def _above(found: Tensor, slack: Tensor, labels: Tensor) -> Tensor:
    """Tell of which images all margins are above the slack; the label has none."""
    return (found > slack).scatter(1, labels.unsqueeze(1), True).all(1)


def _intervals(
    thinned: Thin, clean: Tensor, threat: InputSet, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the interval bounds of all margins, and what rounding may cost each."""
    found, costs = [], []
    size = together(thinned, len(clean), "ibp")
    for x, y in zip(torch.split(clean, size), torch.split(labels, size), strict=True):
        bound, cost = bounded_rounded(thinned.graph, around(x, threat), y)
        found.append(bound.margins)
        costs.append(cost)
    each = torch.cat(costs)
    return torch.cat(found), each.gather(1, labels.unsqueeze(1)) + each
