r"""Objectives on clean and adversarial images together.

Each takes ``batching`` (see :mod:`advnorm.objectives.batching`) and ``likelihood``, the
weight of the likelihood loss of dual norms (sitawarin2021, Eqn. 21).
"""

from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.attacks import Gain, LogitsFn, divergence, log_probabilities
from advnorm.draws import Draws
from advnorm.objectives.batching import Batching, DomainLogits, forward_domains
from advnorm.objectives.registry import OBJECTIVES, Adversary, Loss, count_correct


@OBJECTIVES.register("mixed")
def mixed(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    *,
    gamma: float = 0.5,
    clean_share: float = 1.0,
    batching: Batching = "concatenated",
    likelihood: float = 1.0,
) -> Loss:
    r"""MAT: the weighted clean and adversarial losses (sitawarin2021 Eqn. 1).

    .. math::
        \gamma \, \ell(f(x), y) + (1 - \gamma) \max_{x' \in S(x)} \ell(f(x'), y)

    Also xie2020 Eqn. 1, with :math:`\alpha = \gamma = 0.5`. With a ``clean_share`` below 1
    only that share of the clean images is in the batch (xie2020, section 4.1). Each image
    keeps its weight: at :math:`\gamma = 0.5` the loss is the mean over all images used.
    """
    logits = _passes(model, clean, labels, adversary, clean_share, batching)
    loss = _mixture(logits, labels, gamma)
    return _loss(loss, logits, labels, likelihood)


@OBJECTIVES.register("alp")
def alp(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    *,
    gamma: float = 0.5,
    pairing: float = 0.5,
    batching: Batching = "concatenated",
    likelihood: float = 1.0,
) -> Loss:
    r"""ALP: the mixed loss and the distance of paired logits (Kannan et al., 2018).

    .. math::
        L_{MAT} + \lambda \frac{1}{nK} \sum_i \|f(x_i) - f(x'_i)\|_2^2

    with :math:`K` classes; gradients reach both sides. xie2020 does not state
    :math:`\lambda`; 0.5 is that of the original paper.
    """
    logits = _passes(model, clean, labels, adversary, 1.0, batching)
    parts = _mixture(logits, labels, gamma)
    parts["pairing"] = pairing * F.mse_loss(logits.clean, logits.adversarial)
    return _loss(parts, logits, labels, likelihood)


@OBJECTIVES.register("mixed_kl")
def mixed_kl(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    *,
    gamma: float = 0.5,
    beta: float = 1.0,
    batching: Batching = "concatenated",
    likelihood: float = 1.0,
) -> Loss:
    r"""MAT + KL: the mixed loss and a KL divergence (sitawarin2021 Eqn. 3).

    .. math::
        L_{MAT} + \beta D_{KL}(f(x) \| f(x_{adv}))

    The attack maximizes the cross-entropy; gradients reach both sides of the divergence.
    """
    logits = _passes(model, clean, labels, adversary, 1.0, batching)
    parts = _mixture(logits, labels, gamma)
    parts["kl"] = beta * _divergence(logits)
    return _loss(parts, logits, labels, likelihood)


@OBJECTIVES.register("trades")
def trades(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    *,
    beta: float = 6.0,
    batching: Batching = "concatenated",
    likelihood: float = 1.0,
) -> Loss:
    r"""TRADES: the clean loss and the worst KL divergence from it (Zhang et al., 2019).

    .. math::
        \ell(f(x), y) + \beta \max_{x' \in S(x)} D_{KL}(f(x) \| f(x'))

    The attack maximizes the divergence itself. In the minimization gradients reach both
    sides, as in the paper's code; in the maximization the clean side is fixed.
    """

    def goal(f: LogitsFn, x: Tensor, y: Tensor, draws: Draws) -> Gain:
        return divergence(adversary.clean_logits(model, clean))(f, x, y, draws)

    adversarial = adversary(model, clean, labels, goal=goal)
    logits = forward_domains(model, clean, adversarial, batching=batching)
    parts = {
        "clean": F.cross_entropy(logits.clean, labels),
        "kl": beta * _divergence(logits),
    }
    return _loss(parts, logits, labels, likelihood)


def _passes(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    clean_share: float,
    batching: Batching,
) -> DomainLogits:
    if not 0 <= clean_share <= 1:
        raise ValueError(f"clean_share must be from 0 to 1, not {clean_share:g}")
    adversarial = adversary(model, clean, labels)
    kept = round(clean_share * len(clean))
    return forward_domains(model, clean[:kept], adversarial, batching=batching)


def _mixture(logits: DomainLogits, labels: Tensor, gamma: float) -> dict[str, Tensor]:
    """Weigh each image by its domain; the weights of all images add up to 1."""
    kept, count = len(logits.clean), len(logits.adversarial)
    if not 0 <= gamma <= 1 or (gamma == 1 and not kept):
        raise ValueError(
            f"gamma is the weight of the clean images and must be from 0 to 1, not "
            f"{gamma:g}, with {kept} of them in the batch"
        )
    total = gamma * kept + (1 - gamma) * count
    parts = {}
    if kept:
        losses = F.cross_entropy(logits.clean, labels[:kept], reduction="sum")
        parts["clean"] = gamma / total * losses
    losses = F.cross_entropy(logits.adversarial, labels, reduction="sum")
    parts["adversarial"] = (1 - gamma) / total * losses
    return parts


def _divergence(logits: DomainLogits) -> Tensor:
    """Return the mean over samples of the divergence of f(x') from f(x)."""
    return F.kl_div(
        log_probabilities(logits.adversarial),
        log_probabilities(logits.clean),
        log_target=True,
        reduction="batchmean",
    )


def _loss(
    parts: dict[str, Tensor], logits: DomainLogits, labels: Tensor, likelihood: float
) -> Loss:
    if logits.likelihood.requires_grad:
        parts["likelihood"] = likelihood * logits.likelihood
    total = sum(parts.values(), start=logits.adversarial.new_zeros(()))
    detached = {name: part.detach() for name, part in parts.items()}
    return Loss(total, detached, count_correct(logits.adversarial, labels))
