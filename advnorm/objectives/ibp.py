r"""Certified training by interval bounds (Gowal et al., 2019; sridhar2021, Eqn. 6)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.bounds import cached_trace, ibp_margins, input_box
from advnorm.objectives.registry import OBJECTIVES, Adversary, Loss, count_correct


@OBJECTIVES.register("ibp")
def ibp(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    *,
    kappa: float = 0.5,
) -> Loss:
    r"""IBP: the clean loss and an interval bound of the worst loss (Gowal et al., 2019).

    .. math::
        \kappa \, \ell(f(x), y) + (1 - \kappa) \, \ell(-\underline m_{IBP}(x, \epsilon), y)

    sridhar2021 Eqn. 6: :math:`\underline m_j` is the interval bound of
    :math:`z_y - z_j` with the last linear layer folded in. Batch norm follows Alg. 1: the
    clean batch's moments normalize the clean map and both bounds, gradients reach the clean
    map through them, and they alone update the running statistics. The accuracy reported is
    the verified one. While the schedule has eps at 0, both losses are the clean one.
    """
    check_kappa(kappa)
    with norms.mode(model, "train"), norms.route(model, domain="clean"):
        if adversary.threat is None:
            return clean_loss(model(clean), labels)
        box = input_box(clean, adversary.threat, with_clean=True)
        margins, logits = ibp_margins(cached_trace(model), box, labels)
    assert logits is not None
    return certified_loss(logits, margins, labels, kappa)


def certified_loss(logits: Tensor, margins: Tensor, labels: Tensor, kappa: float) -> Loss:
    """Return Eqn. 6 of clean logits and lower bounds of the margins."""
    loss = kappa * F.cross_entropy(logits, labels)
    bound = (1 - kappa) * F.cross_entropy(-margins, labels)
    parts = {"clean": loss.detach(), "certified": bound.detach()}
    others = margins.detach().scatter(1, labels[:, None], torch.inf)
    return Loss(loss + bound, parts, (others.amin(1) > 0).sum())


def clean_loss(logits: Tensor, labels: Tensor) -> Loss:
    """Return Eqn. 6 at eps 0."""
    loss = F.cross_entropy(logits, labels)
    return Loss(loss, {"clean": loss.detach()}, count_correct(logits, labels))


def check_kappa(kappa: float) -> None:
    """Refuse a weight outside of [0, 1]."""
    if not 0 <= kappa <= 1:
        raise ValueError(
            f"kappa is the weight of the clean loss and must be from 0 to 1, not {kappa:g}"
        )
