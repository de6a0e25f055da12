r"""Objectives on one domain: clean images only, or adversarial images only."""

from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.objectives.registry import OBJECTIVES, Adversary, Loss, count_correct


@OBJECTIVES.register("standard")
def standard(model: nn.Module, clean: Tensor, labels: Tensor, adversary: Adversary) -> Loss:
    """Minimize the cross-entropy of clean images: standard training."""
    with norms.mode(model, "train"), norms.route(model, domain="clean"):
        logits = model(clean)
    loss = F.cross_entropy(logits, labels)
    return Loss(loss, {"clean": loss.detach()}, count_correct(logits, labels))


@OBJECTIVES.register("pgd")
def pgd(model: nn.Module, clean: Tensor, labels: Tensor, adversary: Adversary) -> Loss:
    r"""Minimize the cross-entropy of adversarial images only (Madry et al., 2018).

    .. math::
        \min_\theta \max_{x' \in S(x)} \ell(f_\theta(x'), y)
    """
    adversarial = adversary(model, clean, labels)
    with norms.mode(model, "train"), norms.route(model, domain="adversarial"):
        logits = model(adversarial)
    loss = F.cross_entropy(logits, labels)
    return Loss(loss, {"adversarial": loss.detach()}, count_correct(logits, labels))
