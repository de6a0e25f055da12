"""What does the first layer detect? Its weights as pictures (galloway2019)."""

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET
from advnorm.diagnosis.first_layer import effective_weights, first_layer, input_norms
from advnorm.diagnosis.linear_descent import angle
from advnorm.diagnosis.pictures import picture
from advnorm.diagnosis.registry import Count, question
from advnorm.diagnosis.tilt import boundary_normals, centroid_difference
from advnorm.norms import Mode
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Picture
from advnorm.threat import Threat

_NO_NORM: dict[str, Mode] = {"": "running"}


@question("weights")
def weights(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    pair: tuple[int, int] = (0, 1),
    count: Count = 16,
    training_means: Tensor | None = None,
    progress: Progress = QUIET,
) -> Diagnosis:
    """First-layer weights and pixel deviations as pictures (galloway2019 Figs. 10, 11).

    A linear layer's weights are drawn as they act on the input, with running statistics and
    with those of the images, beside the nearest-centroid classifier of the classes
    ``pair``. At most ``count`` units or filters are shown.
    """
    deviation = images.flatten(1).std(0, correction=0).view_as(images[0])
    shown = (
        _boundaries(
            model,
            images,
            centroid_difference(images, labels, pair, training_means),
            pair,
            count,
        )
        if isinstance(first_layer(model), nn.Linear)
        else _filters(model, count)
    )
    return Diagnosis(
        question="weights",
        source="galloway2019 Figs. 10, 11",
        reading="Red is above zero, blue below. Weights that resemble the nearest centroid "
        "use what a person sees; large weights where the images hardly deviate are the "
        "tilt that batch norm brings.",
        numbers={
            "largest deviation": float(deviation.max()),
            "values without deviation": float((deviation == 0).double().mean()),
        },
        settings={"n": len(images), "classes": f"{pair[0]}, {pair[1]}"},
        panels=(
            Panel(kind="pictures", title="Weights", pictures=shown),
            Panel(
                kind="pictures",
                title="Standard deviation of the images",
                pictures=(picture("standard deviation", deviation),),
            ),
        ),
    )


def _boundaries(
    model: nn.Module, images: Tensor, centroid: Tensor, pair: tuple[int, int], count: int
) -> tuple[Picture, ...]:
    pictures = [picture("nearest centroid", centroid.view_as(images[0]), signed=True)]
    kinds: dict[str, Mode] = {"tracked, ": "running", "batch, ": "batch"}
    for name, statistics in (kinds if input_norms(model) else _NO_NORM).items():
        weights = effective_weights(model, images, statistics=statistics)
        rows = boundary_normals(model, images, pair, weights)[:count]
        for row, degrees in zip(rows, angle(rows, centroid).tolist(), strict=True):
            label = f"{name}{degrees:.1f} degrees"
            pictures.append(picture(label, row.view_as(images[0]), signed=True))
    return tuple(pictures)


def _filters(model: nn.Module, count: int) -> tuple[Picture, ...]:
    filters = first_layer(model).weight
    assert isinstance(filters, Tensor)
    shown = torch.unbind(filters.detach()[:count])
    return tuple(picture(f"filter {i}", row, signed=True) for i, row in enumerate(shown))
