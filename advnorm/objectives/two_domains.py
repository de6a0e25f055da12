r"""Objectives that train on clean and adversarial images together.

Each takes ``batching`` (see :mod:`advnorm.objectives.batching`) and ``likelihood``, the
weight of the dual norms' likelihood loss (sitawarin2021, Eqn. 21), 0 without dual norms.
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
    r"""Minimize the losses of clean and adversarial images, weighted (MAT).

    .. math::
        \gamma \, \ell(f(x), y) + (1 - \gamma) \max_{x' \in S(x)} \ell(f(x'), y)

    sitawarin2021 Eqn. 1; xie2020 Eqn. 1 with :math:`\alpha = \gamma = 0.5`. With a
    ``clean_share`` below 1 the other clean images are left out of the batch (xie2020,
    section 4.1), and each image keeps its weight: at :math:`\gamma = 0.5` the loss is the
    mean over all images that remain.
    """
    found = _passes(model, clean, labels, adversary, clean_share, batching)
    loss = _mixture(found, labels, gamma)
    return _loss(loss, found, labels, likelihood)


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
    r"""Minimize the mixed loss and the distance of paired logits (Kannan et al., 2018).

    .. math::
        L_{MAT} + \lambda \frac{1}{nK} \sum_i \|f(x_i) - f(x'_i)\|_2^2

    with :math:`K` classes; gradients reach both sides. xie2020 does not state
    :math:`\lambda`; 0.5 is that of the original paper.
    """
    found = _passes(model, clean, labels, adversary, 1.0, batching)
    parts = _mixture(found, labels, gamma)
    parts["pairing"] = pairing * F.mse_loss(found.clean, found.adversarial)
    return _loss(parts, found, labels, likelihood)


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
    r"""Minimize the mixed loss and a divergence (MAT + KL, sitawarin2021 Eqn. 3).

    .. math::
        L_{MAT} + \beta D_{KL}(f(x) \| f(x_{adv}))

    The attack climbs the cross-entropy; gradients reach both sides of the divergence.
    """
    found = _passes(model, clean, labels, adversary, 1.0, batching)
    parts = _mixture(found, labels, gamma)
    parts["kl"] = beta * _divergence(found)
    return _loss(parts, found, labels, likelihood)


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
    r"""Minimize the clean loss and the worst divergence from it (Zhang et al., 2019).

    .. math::
        \ell(f(x), y) + \beta \max_{x' \in S(x)} D_{KL}(f(x) \| f(x'))

    The attack climbs the divergence itself. In the minimization gradients reach both
    sides, as in the paper's code; in the maximization the clean side is fixed.
    """

    def aim(f: LogitsFn, x: Tensor, y: Tensor, draws: Draws) -> Gain:
        return divergence(adversary.clean_logits(model, clean))(f, x, y, draws)

    adversarial = adversary(model, clean, labels, aim=aim)
    found = forward_domains(model, clean, adversarial, batching=batching)
    parts = {
        "clean": F.cross_entropy(found.clean, labels),
        "kl": beta * _divergence(found),
    }
    return _loss(parts, found, labels, likelihood)


def _passes(
    model: nn.Module,
    clean: Tensor,
    labels: Tensor,
    adversary: Adversary,
    clean_share: float,
    batching: Batching,
) -> DomainLogits:
    if not 0 <= clean_share <= 1:
        raise ValueError(f"clean_share is from 0 to 1, not {clean_share:g}")
    adversarial = adversary(model, clean, labels)
    kept = round(clean_share * len(clean))
    return forward_domains(model, clean[:kept], adversarial, batching=batching)


def _mixture(found: DomainLogits, labels: Tensor, gamma: float) -> dict[str, Tensor]:
    """Weigh each image by its domain; the weights of the images present add up to 1."""
    kept, count = len(found.clean), len(found.adversarial)
    if not 0 <= gamma <= 1 or (gamma == 1 and not kept):
        raise ValueError(
            f"gamma is the weight of the clean images, from 0 to 1, not {gamma:g} with "
            f"{kept} of them in the batch"
        )
    total = gamma * kept + (1 - gamma) * count
    parts = {}
    if kept:
        losses = F.cross_entropy(found.clean, labels[:kept], reduction="sum")
        parts["clean"] = gamma / total * losses
    losses = F.cross_entropy(found.adversarial, labels, reduction="sum")
    parts["adversarial"] = (1 - gamma) / total * losses
    return parts


def _divergence(found: DomainLogits) -> Tensor:
    """Return the mean over samples of the divergence of f(x') from f(x)."""
    return F.kl_div(
        log_probabilities(found.adversarial),
        log_probabilities(found.clean),
        log_target=True,
        reduction="batchmean",
    )


def _loss(
    parts: dict[str, Tensor], found: DomainLogits, labels: Tensor, likelihood: float
) -> Loss:
    if found.likelihood.requires_grad:
        parts["likelihood"] = likelihood * found.likelihood
    total = sum(parts.values(), start=found.adversarial.new_zeros(()))
    detached = {name: part.detach() for name, part in parts.items()}
    return Loss(total, detached, count_correct(found.adversarial, labels))
