r"""How good is the nearest-centroid classifier? The reference of galloway2019, section 3.

With the means :math:`\nu^0, \nu^1` of two classes it is linear,

.. math::
    w = \nu^1 - \nu^0, \qquad b = -\tfrac12 (\|\nu^1\|^2 - \|\nu^0\|^2).

Under FGSM, which is optimal for a linear model, an image moves by
:math:`-y \epsilon \operatorname{sign}(w)` with :math:`y = \pm 1`.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, image_bounds
from advnorm.diagnosis.registry import NonNegative, question
from advnorm.diagnosis.tilt import class_means
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

Radii = Annotated[tuple[NonNegative, ...], Field(min_length=1)]


@question("nearest_centroid")
def nearest_centroid(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    pair: tuple[int, int] = (0, 1),
    radii: Radii = (0.0, 0.1, 0.25),
    training_means: Tensor | None = None,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Accuracy of the nearest-centroid classifier under FGSM (galloway2019 Fig. 10, 3).

    The centroids of the classes ``pair`` are those of the training set where a run is
    asked, else those of the images. The model itself is not used: the classifier is what
    its boundary is compared with in ``tilt``.
    """
    first, second = class_means(images, labels, pair, training_means)
    weight = second - first
    bias = (first.square().sum() - second.square().sum()) / 2
    chosen = (labels == pair[0]) | (labels == pair[1])
    x = images[chosen].flatten(1).double()
    signs = torch.where(labels[chosen] == pair[1], 1.0, -1.0).double().to(x.device)
    low, high = image_bounds(threat)

    def accuracy(eps: float) -> float:
        moved = (x - eps * signs[:, None] * weight.sign()).clamp(low, high)
        right = signs * ((moved if eps else x) @ weight + bias) > 0
        return 100 * float(right.double().mean())

    accuracies = tuple(accuracy(eps) for eps in radii)
    return Diagnosis(
        question="nearest_centroid",
        source="galloway2019 section 3, Fig. 10",
        reading="The nearest-centroid classifier is the most robust linear one if both "
        "classes have the same spherical covariance: a boundary that is tilted against it "
        "is crossed by smaller perturbations.",
        numbers={
            f"accuracy, eps {eps:g}": value
            for eps, value in zip(radii, accuracies, strict=True)
        },
        settings={"n": len(x), "classes": f"{pair[0]}, {pair[1]}"},
        panels=(
            Panel(
                kind="lines",
                title="Nearest-centroid classifier under FGSM",
                x="eps (linf)",
                y="accuracy, %",
                series=(Series(name="accuracy", x=radii, y=accuracies),),
            ),
        ),
    )
