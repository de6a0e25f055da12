r"""Is the boundary tilted? Its angle with the nearest-centroid classifier (galloway2019).

With :math:`w^*` the difference of the classes' means and w the weights as they act on the
input, :math:`\theta = \cos^{-1}(w^T w^* / \|w\| \|w^*\|)` (section 3, Table 1). Batch norm
divides w by :math:`\sqrt{\sigma^2 + c}`: along dimensions of low variance, a small constant
c tilts the boundary.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, to_floats
from advnorm.diagnosis.first_layer import (
    effective_weights,
    input_norms,
    is_linear_classifier,
)
from advnorm.diagnosis.linear_descent import (
    LinearClassifier,
    angle,
    batch_moments,
    descend,
    normalize,
    running_after,
)
from advnorm.diagnosis.registry import NonNegative, question
from advnorm.draws import Draws
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

CONSTANTS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The values of c in Fig. 11."""
_LR, _EPOCHS = 0.1, 50  # galloway2019, section 3: MNIST 3 against 7


@question("tilt")
def tilt(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    pair: tuple[int, int] = (0, 1),
    constants: tuple[NonNegative, ...] = CONSTANTS,
    seed: int = 0,
    training_means: Tensor | None = None,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Angle to the nearest-centroid boundary (galloway2019 Table 1, Figs. 1, 10, 11).

    The angle is between the first linear boundary and the nearest-centroid classifier of
    the classes ``pair`` (of the training set where a run is asked, as in the paper; else of
    the images), with the running statistics and with those of the images. A batch
    norm on the input is also examined with other constants c, and linear classifiers of the
    same images are trained at each c, as in the paper. For a layer with many units the
    angle is their mean.
    """
    centroid = centroid_difference(images, labels, pair, training_means)
    own = _angles(model, images, centroid, pair, (None,))
    numbers = {f"this model, {name}": angles[0] for name, angles in own.items()}
    lines = {}
    if input_norms(model):
        swept = _angles(model, images, centroid, pair, constants)
        lines = {f"this model, {name}": angles for name, angles in swept.items()}
    else:
        numbers = {"this model": numbers["this model, tracked"]}
    plain, by_constant = retrain(
        images, labels, pair, constants, seed=seed, progress=progress
    )
    numbers["trained anew, no norm"] = plain
    for name, angles in by_constant.items():
        numbers[f"trained anew, {name}, c = {constants[0]:g}"] = angles[0]
    lines |= {f"trained anew, {name}": angles for name, angles in by_constant.items()}
    return Diagnosis(
        question="tilt",
        source="galloway2019 Table 1, Figs. 10, 11",
        reading="At 0 degrees the boundary is the nearest-centroid classifier's, the most "
        "robust linear one here; at 90 degrees it has nothing to do with it. A larger c "
        "turns the boundary of a batch-normalized input back.",
        numbers=numbers,
        settings={"n": len(images), "classes": f"{pair[0]}, {pair[1]}", "seed": seed},
        panels=(_panel(lines, constants),),
    )


def centroid_difference(
    images: Tensor,
    labels: Tensor,
    pair: tuple[int, int],
    training_means: Tensor | None = None,
) -> Tensor:
    """Return the mean of the second class minus that of the first, flat."""
    first, second = class_means(images, labels, pair, training_means)
    return (second - first).to(images)


def class_means(
    images: Tensor,
    labels: Tensor,
    pair: tuple[int, int],
    training_means: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the means of two classes, flat, in double precision.

    They are those of the images, unless those of a training set are passed.
    """
    first, second = (images[labels == label].flatten(1) for label in pair)
    if not (len(first) and len(second)):
        raise ValueError(
            f"there are no images of class {pair[len(first) > 0]}: choose "
            "two classes that the images have as the pair"
        )
    if training_means is not None:
        means = training_means.flatten(1).to(images.device, torch.float64)
        return means[pair[0]], means[pair[1]]
    return first.double().mean(0), second.double().mean(0)


def boundary_normals(
    model: nn.Module, images: Tensor, pair: tuple[int, int], weights: Tensor
) -> Tensor:
    """Return the normals of the boundaries: between the classes, or of each hidden unit."""
    if not is_linear_classifier(model) or len(weights) == 1:
        return weights
    if max(pair) >= len(weights):
        raise ValueError(
            f"the model has {len(weights)} classes, 0 to {len(weights) - 1}: choose two of "
            f"them as the pair, not {pair[0]} and {pair[1]}"
        )
    return weights[pair[1]][None] - weights[pair[0]][None]


class RetrainedAngles(NamedTuple):
    """Angles of linear classifiers trained on the images."""

    plain: float
    by_constant: dict[str, list[float]]


def retrain(
    images: Tensor,
    labels: Tensor,
    pair: tuple[int, int],
    constants: tuple[float, ...],
    *,
    seed: int = 0,
    progress: Progress = QUIET,
) -> RetrainedAngles:
    """Train linear classifiers without norm and with batch norm at each c (Fig. 11)."""
    selected = (labels == pair[0]) | (labels == pair[1])
    x = images[selected].flatten(1).double()
    signs = torch.where(labels[selected] == pair[1], 1.0, -1.0).double()
    start, centroid = (
        initial_classifier(x.shape[1], seed, x),
        centroid_difference(images, labels, pair),
    )
    line = descend(x, signs, start, lr=_LR, steps=_EPOCHS)
    here = batch_moments(x)
    running = running_after(here, _EPOCHS)
    angles: dict[str, list[float]] = {"tracked": [], "batch": []}
    for count, c in enumerate(constants, 1):
        w = descend(normalize(x, here, c), signs, start, lr=_LR, steps=_EPOCHS).weight
        for name, moments in (("tracked", running), ("batch", here)):
            angles[name].append(float(angle(w * (moments.var + c).rsqrt(), centroid)))
        progress.update(count, len(constants), f"c = {c:g}")
    return RetrainedAngles(float(angle(line.weight, centroid)), angles)


def initial_classifier(features: int, seed: int, like: Tensor) -> LinearClassifier:
    r"""Return PyTorch's initial linear layer, :math:`U(-1/\sqrt d, 1/\sqrt d)`."""
    draws = Draws.of(seed, torch.zeros(1, dtype=torch.int64)).stream("linear")
    both = (2 * draws.uniform(features + 1, dtype=torch.float64)[0] - 1) * features**-0.5
    return LinearClassifier(both[:-1].to(like), both[-1].to(like))


def _angles(
    model: nn.Module,
    images: Tensor,
    centroid: Tensor,
    pair: tuple[int, int],
    constants: tuple[float | None, ...],
) -> dict[str, list[float]]:
    angles: dict[str, list[float]] = {"tracked": [], "batch": []}
    for c in constants:
        for name, statistics in (("tracked", "running"), ("batch", "batch")):
            weights = effective_weights(model, images, statistics=statistics, c=c)  # type: ignore[arg-type]
            rows = boundary_normals(model, images, pair, weights)
            angles[name].append(float(angle(rows, centroid).mean()))
    return angles


def _panel(lines: Mapping[str, list[float]], constants: tuple[float, ...]) -> Panel:
    powers = to_floats(torch.tensor(constants, dtype=torch.float64).log10())
    return Panel(
        kind="lines",
        title="Tilt over the constant c",
        x="log10 of c",
        y="angle, degrees",
        series=tuple(Series(name=n, x=powers, y=tuple(v)) for n, v in lines.items()),
    )
