r"""The losses whose surface is examined: plain, adversarial and certified.

Each is a function of the parameters alone: images, labels and adversarial examples are
fixed beforehand, norms use the statistics that the caller names, and nothing of the model
changes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds import ibp_margins, input_box, trace
from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.diagnosis.common import QUIET, check_statistics_mode
from advnorm.model_state import eval_mode
from advnorm.norms import Mode, mode, twice_differentiable
from advnorm.progress import Progress
from advnorm.registry import unknown
from advnorm.threat import Threat

LossFn = Callable[[], Tensor]
LOSSES = ["plain", "adversarial", "certified"]


class LossSurface(NamedTuple):
    """A loss as a function of the trained parameters, and these parameters."""

    loss: LossFn
    parameters: list[nn.Parameter]


@contextmanager
def loss_surface(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat | None,
    *,
    loss: str,
    statistics: Mode,
    progress: Progress = QUIET,
) -> Iterator[LossSurface]:
    """Let a loss be differentiated, twice if need be, then restore the model.

    Dropout is off, so every call computes the same function. For ``loss`` see
    :func:`make_loss`.
    """
    check_statistics_mode(statistics)
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("no parameter of the model requires a gradient")
    with (
        torch.enable_grad(),
        eval_mode(model),
        mode(model, statistics),
        twice_differentiable(model),
    ):
        function = make_loss(
            model, images, labels, loss=loss, threat=threat, progress=progress
        )
        yield LossSurface(function, parameters)


def make_loss(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    loss: str = "plain",
    threat: Threat | None = None,
    steps: int = 10,
    progress: Progress = QUIET,
) -> LossFn:
    r"""Return the mean cross-entropy as a function of the parameters.

    ``plain``: of the images. ``adversarial``: of the images that PGD finds now, with the
    running statistics. ``certified``: of the worst logits that interval bounds allow, each
    :math:`z_y - z_j` at its lower bound (sridhar2021 Eqn. 6 without its clean term).
    """
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    if loss == "plain":
        return lambda: F.cross_entropy(model(images), labels)
    if threat is None:
        raise ValueError(f"the {loss} loss needs a threat, such as threat=Linf(8/255)")
    if loss == "adversarial":
        attack = f"pgd-{steps}"
        with mode(model, "running"):
            x = attack_images(
                model, images, labels, threat, attack=attack, progress=progress
            )
        return lambda: F.cross_entropy(model(x), labels)
    graph = trace(model)
    return lambda: F.cross_entropy(
        -ibp_margins(graph, input_box(images, threat, with_clean=True), labels).lower,
        labels,
    )
