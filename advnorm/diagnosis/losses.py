r"""The losses whose surface is looked at: plain, adversarial and certified.

Each is a function of the parameters alone: images, labels and adversarial examples are
fixed beforehand, norms use the statistics that the caller's mode names, and nothing of the
model is moved.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds import ibp_margins, input_box, trace
from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.model_state import eval_mode
from advnorm.norms import Mode, mode, twice_differentiable
from advnorm.progress import Progress
from advnorm.registry import unknown
from advnorm.threat import Threat

LossFn = Callable[[], Tensor]
LOSSES = ["plain", "adversarial", "certified"]


def make_loss(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    loss: str = "plain",
    threat: Threat | None = None,
    steps: int = 10,
    progress: Progress | None = None,
) -> LossFn:
    r"""Return the mean cross-entropy as a function of the parameters.

    ``plain`` of the images; ``adversarial`` of images that PGD found now, with the running
    statistics; ``certified`` of the worst logits that interval bounds allow (sridhar2021
    Eqn. 6 without its clean term), :math:`z_y - z_j` at its lower bound.
    """
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    if loss == "plain":
        return lambda: F.cross_entropy(model(images), labels)
    if threat is None:
        raise ValueError(f"the {loss} loss needs a threat, such as Linf(8/255)")
    if loss == "adversarial":
        with mode(model, "running"):
            x = attack_images(
                model, images, labels, threat, attack=f"pgd-{steps}", progress=progress
            )
        return lambda: F.cross_entropy(model(x), labels)
    graph = trace(model)
    return lambda: F.cross_entropy(
        -ibp_margins(graph, input_box(images, threat, with_clean=True), labels).lower,
        labels,
    )


@contextmanager
def differentiable(model: nn.Module, statistics: Mode) -> Iterator[list[nn.Parameter]]:
    """Differentiate a model without a trace; yields the parameters that are trained.

    Dropout is off: every call of a loss is of the same surface.
    """
    if statistics == "train":
        raise ValueError("a diagnosis does not move statistics: write batch or running")
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("the model has no parameter that is trained")
    with (
        torch.enable_grad(),
        eval_mode(model),
        mode(model, statistics),
        twice_differentiable(model),
    ):
        yield parameters
