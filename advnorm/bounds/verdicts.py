r"""Certificates: verdicts that follow from bounds of margins, rounding included.

An image is certified where the bound of every margin is above the rounding slack; nowhere
else in this package is a margin a proof.

**The slack.** Bounds are computed in floating point of unit roundoff u, and so are the
logits that they speak of. A logit is a sum of terms, which together are at most
:math:`M_j = \sum_i |W_{ji}| \max |h_i| + |b_j|` over the set (and go through what is
behind the last linear layer: :mod:`advnorm.bounds.rounding`), and its rounding error is a
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

from advnorm.bounds import budget
from advnorm.bounds.box import InputSet, input_box
from advnorm.bounds.interval import ibp_margins_and_rounding
from advnorm.bounds.methods import METHODS, batch_size, compute_margins, prepare_graph
from advnorm.bounds.precision import exact_products
from advnorm.bounds.simplify import SimplifiedGraph
from advnorm.labelled_data import Array, LabelledData, read_samples
from advnorm.threat import check_threat

CHEAPEST_FIRST = ("ibp", "crown-ibp", "crown")


class Certificates(NamedTuple):
    """Which images are certified, and the numbers behind it.

    ``certified`` has shape (batch,): true where no image of the threat has another
    prediction than the label. ``margins`` has shape (batch, classes): lower bounds of the
    label's logit minus each class's. ``slack``, of the same shape, is what rounding may
    cost a margin. ``certified`` says that all margins of other classes are above their
    slack.
    """

    certified: Tensor
    margins: Tensor
    slack: Tensor


def certify(
    model: nn.Module,
    images: Array | LabelledData,
    labels: Array | None = None,
    threat: InputSet | None = None,
    *,
    method: str = "crown",
    memory: float = budget.MEGABYTES,
) -> Certificates:
    """Prove which images keep their label under every perturbation of the threat.

    >>> from advnorm import Linf
    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> model[0].weight.data = torch.eye(2)  # the logits are the two pixels
    >>> images, labels = torch.tensor([[0.9, 0.1], [0.5, 0.4]]), torch.tensor([0, 0])
    >>> result = certify(model, images, labels, Linf(0.1))
    >>> result.certified.tolist()
    [True, False]
    >>> [round(margin, 4) for margin in result.margins[:, 1].tolist()]
    [0.6, -0.1]

    Args:
        model: Maps images in the threat's bounds to logits, and treats each image of a
            batch alone: batch norms use running statistics (``model.eval()``). An
            operation that has no rule is refused by name.
        images: Clean images, shape ``(batch, ...)``; a tensor, an array or a list. Or a
            Dataset or DataLoader of images and labels.
        labels: One class number per image; ``None`` with a Dataset or DataLoader.
        threat: ``Linf`` or ``L2``. It cannot be left out.
        method: ``"ibp"`` (fastest), ``"crown-ibp"`` or ``"crown"`` (tightest).
        memory: Megabytes that the bounds may take, about, beside model and images:
            images and rows are split to fit.

    Returns:
        ``certified``, one bool an image, with all margins and what rounding may cost them.
        An image that is not certified may be robust or not: nothing is known.
    """
    if threat is None:
        raise ValueError("a threat is missing: pass one, such as threat=Linf(8/255)")
    check_threat(threat)
    x, y = _as_tensors(images, labels)
    with torch.no_grad(), exact_products(x.device), budget.limited(memory):
        graph = prepare_graph(model, x, y, threat)
        margins, slack = _interval_margins(graph, x, y, threat)
        if method != "ibp":
            margins = compute_margins(graph, x, y, threat, method)
        return Certificates(is_proof(margins, slack, y), margins, slack)


def is_certified(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: InputSet,
    *,
    method: str = "crown",
    memory: float = budget.MEGABYTES,
) -> Tensor:
    """Tell which images ``method``, or a cheaper one, certifies; shape (batch,).

    The cheapest is tried first, and the next on what is left. This is much faster than
    :func:`certify`, and never certifies less.
    """
    tighter_methods = _after_ibp(method)
    images, labels = _as_tensors(images, labels)
    check_threat(threat)
    if not len(images):
        return labels.new_zeros(0, dtype=torch.bool)
    with torch.no_grad(), exact_products(images.device), budget.limited(memory):
        graph = prepare_graph(model, images, labels, threat)
        margins, slack = _interval_margins(graph, images, labels, threat)
        certified = is_proof(margins, slack, labels)
        for tighter in tighter_methods:
            left = (~certified).nonzero().squeeze(1)
            if not len(left):
                break
            margins = compute_margins(graph, images[left], labels[left], threat, tighter)
            certified[left] = is_proof(margins, slack[left], labels[left])
        return certified


def is_proof(margins: Tensor, slack: Tensor, labels: Tensor) -> Tensor:
    """Tell of which images all margins are above the slack, but for the label's own."""
    return (margins > slack).scatter(1, labels.unsqueeze(1), True).all(1)


def _as_tensors(images: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Convert images and labels to tensors; labels may be integers of any type."""
    x, y = read_samples(images, labels)
    is_class = not y.is_floating_point() and y.dtype != torch.bool
    return x, y.long() if is_class else y


def _after_ibp(method: str) -> tuple[str, ...]:
    """Return the methods to try after interval bounds, up to ``method``."""
    METHODS[method]  # refuses an unknown name
    if method not in CHEAPEST_FIRST:
        return (method,)
    return CHEAPEST_FIRST[1 : CHEAPEST_FIRST.index(method) + 1]


def _interval_margins(
    graph: SimplifiedGraph, images: Tensor, labels: Tensor, threat: InputSet
) -> tuple[Tensor, Tensor]:
    """Return the interval bounds of all margins, and the slack of each."""
    margins, roundings = [], []
    size = batch_size(graph, images, "ibp")
    for x, y in zip(torch.split(images, size), torch.split(labels, size), strict=True):
        bounds, rounding = ibp_margins_and_rounding(graph.graph, input_box(x, threat), y)
        margins.append(bounds.lower)
        roundings.append(rounding)
    each = torch.cat(roundings)
    return torch.cat(margins), each.gather(1, labels.unsqueeze(1)) + each
