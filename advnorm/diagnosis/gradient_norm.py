r"""How large are the gradients? (sridhar2021, Fig. 1a and B.4)."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET
from advnorm.diagnosis.losses import loss_surface
from advnorm.diagnosis.registry import question
from advnorm.norms import Mode
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


class GradientNorms(NamedTuple):
    r"""The norm of the total gradient, and the norm of each parameter's gradient.

    .. math::
        \|g\|_2 = \Bigl(\sum_i \|g_i\|_2^2\Bigr)^{1/2}, \qquad
        \frac1k \sum_{i=1}^k \|g_i\|_2

    over the k parameter tensors. sridhar2021 plots "the average norm of all gradients".
    """

    total: Tensor
    mean: Tensor
    each: Tensor


def gradient_norms(grads: Iterable[Tensor]) -> GradientNorms:
    """Return the norms, on the gradients' device."""
    each = torch.stack(torch._foreach_norm(list(grads))).double()
    return GradientNorms(torch.linalg.vector_norm(each), each.mean(), each)


@question("gradient_norm")
def gradient_norm(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    loss: str = "plain",
    statistics: Mode = "batch",
    progress: Progress = QUIET,
) -> Diagnosis:
    """Gradient norm of the plain, adversarial or certified loss, in total and by layer."""
    with loss_surface(
        model, images, labels, threat, loss=loss, statistics=statistics, progress=progress
    ) as surface:
        grads = torch.autograd.grad(
            surface.loss(), surface.parameters, materialize_grads=True
        )
    norms = gradient_norms(grads)
    layers = [
        size
        for size, parameter in zip(norms.each.tolist(), surface.parameters, strict=True)
        if parameter.ndim > 1  # those that networks with and without norms share
    ]
    return Diagnosis(
        question="gradient_norm",
        source="sridhar2021 Fig. 1a",
        reading="Gradients that stay large late in training belong to a loss that is not "
        "smooth; the norm of batch-normalized models is expected to be lower.",
        numbers={"norm": float(norms.total), "mean of norms": float(norms.mean)},
        settings={"loss": loss, "statistics": statistics, "n": len(images)},
        panels=(
            Panel(
                kind="bars",
                title=f"Gradient norm of the {loss} loss",
                x="weights of a layer, from the input",
                y="norm",
                log=True,
                series=(Series(name="norm", x=tuple(range(1, len(layers) + 1)), y=layers),),
            ),
        ),
    )
