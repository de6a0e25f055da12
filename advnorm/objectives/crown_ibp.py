r"""Certified training by CROWN-IBP (Zhang et al., 2020)."""

from torch import Tensor, nn

from advnorm import norms
from advnorm.bounds import cached_trace, crown_ibp_and_ibp_margins, ibp_margins, input_box
from advnorm.objectives.ibp import certified_loss, check_kappa, clean_loss
from advnorm.objectives.registry import OBJECTIVES, Adversary, Loss


@OBJECTIVES.register("crown_ibp")
def crown_ibp(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    *,
    kappa: float = 0.5,
    beta: float = 1.0,
) -> Loss:
    r"""CROWN-IBP: the clean loss and a certified bound of the worst (Zhang et al., 2020).

    .. math::
        \kappa \, \ell(f(x), y) + (1 - \kappa) \, \ell\bigl(
        -(\beta \underline m_{CROWN-IBP} + (1 - \beta) \underline m_{IBP}), y\bigr)

    where the first bound takes one linear backward pass over the interval bounds. The
    authors decrease :math:`\beta` from 1 to 0 while eps rises; at 0 this is ``ibp``, at the
    same cost. Batch norm follows sridhar2021, Alg. 1. The accuracy reported is the verified
    one.
    """
    check_kappa(kappa)
    if not 0 <= beta <= 1:
        raise ValueError(
            f"beta is the weight of CROWN's bound and must be from 0 to 1, not {beta:g}"
        )
    with norms.mode(model, "train"), norms.route(model, domain="clean"):
        if adversary.threat is None:
            return clean_loss(model(clean), labels)
        box, graph = (
            input_box(clean, adversary.threat, with_clean=True),
            cached_trace(model),
        )
        if beta == 0:
            margins, logits = ibp_margins(graph, box, labels)
        else:
            linear, interval = crown_ibp_and_ibp_margins(graph, box, labels)
            margins, logits = linear.lower, linear.logits
            if beta < 1:
                margins = beta * margins + (1 - beta) * interval.lower
    assert logits is not None
    return certified_loss(logits, margins, labels, kappa)
