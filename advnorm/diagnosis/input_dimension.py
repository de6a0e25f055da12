r"""Are larger images easier to attack? Loss and accuracy over the input dimension.

galloway2019, section 5 and appendix F: images are enlarged by repeating pixels, which
changes nothing that a person sees. Theorem 4 of Simon-Gabriel et al. (2019) predicts that
the loss under an attack of radius eps grows like :math:`\sqrt d`, by k for images k times
as wide; weight decay that grows with d is said to undo it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, frozen_eval, image_bounds
from advnorm.diagnosis.registry import Count, Counts, NonNegative, question
from advnorm.diagnosis.small_networks import (
    NetworkScore,
    SGDOptions,
    TrainTestSplit,
    attack_with_bim,
    evaluate_network,
    fully_connected,
    split_train_test,
    train_network,
)
from advnorm.draws import Draws
from advnorm.norms import NORMS
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.registry import unknown
from advnorm.threat import Linf, Threat

NETWORKS = ["linear", "mlp", "mlp+bn"]
_BATCH, _STEPS = 128, 100


@dataclass(frozen=True)
class DimensionOptions:
    """The network and its training; the defaults are the paper's."""

    network: str = "linear"
    epochs: int = 50
    lr: float = 0.01
    decay: float = 0.0025
    """Weight decay, times the squared factor: 0.01 and 0.0225 for 2 and 3 (Table 13)."""
    seed: int = 0


class DimensionScores(NamedTuple):
    """Scores of a network of one input dimension on the test images."""

    clean: NetworkScore
    noise: NetworkScore
    attacked: NetworkScore


def enlarge(images: Tensor, factor: int) -> Tensor:
    """Repeat each pixel in both directions; the entries of a vector ``factor**2`` times."""
    if images.ndim < 4:
        return images.repeat_interleave(factor**2, -1)
    return images.repeat_interleave(factor, -2).repeat_interleave(factor, -1)


def measure_dimension(
    data: TrainTestSplit,
    factor: int,
    threat: Threat,
    options: DimensionOptions,
    *,
    decay: float,
) -> DimensionScores:
    """Train a network on enlarged images; noise is added before they are enlarged."""
    train, test = (enlarge(images, factor) for images in (data.images, data.test_images))
    size = min(_BATCH, max(8, len(train) // 8))
    training = SGDOptions(options.epochs, options.lr, size, decay * factor**2, options.seed)
    classes = int(max(data.labels.max(), data.test_labels.max())) + 1
    model = train_network(
        lambda: _network(options.network, train[0].numel(), classes),
        train,
        data.labels,
        training,
    )
    with frozen_eval(model):
        # one step is the best attack on a linear model
        steps = 1 if options.network == "linear" else _STEPS
        length, labels = threat.eps / steps, data.test_labels
        attacked = attack_with_bim(
            model, test, labels, threat, steps=steps, step_size=length
        )
    noisy = enlarge(data.test_images + _noise(data), factor)
    return DimensionScores(
        *(evaluate_network(model, x, data.test_labels) for x in (test, noisy, attacked))
    )


@question("input_dimension")
def input_dimension(
    model: nn.Module | None,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    factors: Counts = (1, 2, 3),
    network: str = "linear",
    epochs: Count = 200,
    decay: NonNegative = 0.0025,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Accuracy and loss on enlarged images (galloway2019 Tables 6, 7, 13, 14).

    Networks (``linear``, ``mlp``, ``mlp+bn``) are trained on half of each class and tested
    on the other half, without weight decay and with ``decay`` times the squared factor; the
    given model is not used. The batch size is 128 as in the paper (50 epochs of MNIST), or
    an eighth of the images if that is less. Without a threat the attack is Linf(0.1).
    """
    if network not in NETWORKS:
        raise unknown("network", network, NETWORKS)
    data = split_train_test(images, labels)
    ball = Linf(0.1, image_bounds(threat)) if threat is None else threat
    options = DimensionOptions(network, epochs=epochs, decay=decay)
    scores: dict[str, list[DimensionScores]] = {"no decay": [], "decay": []}
    progress.update(0, 2 * len(factors), "networks")
    for name, rows in scores.items():
        chosen = decay if name == "decay" else 0.0
        for factor in factors:
            rows.append(measure_dimension(data, factor, ball, options, decay=chosen))
            done = sum(map(len, scores.values()))
            text = f"networks; {name}, {factor} times as wide"
            progress.update(done, 2 * len(factors), text)
    numbers = {
        f"{name}, {factor} x: {kind}": number
        for name, rows in scores.items()
        for factor, row in zip(factors, rows, strict=True)
        for kind, number in {
            "clean accuracy": row.clean.accuracy,
            "noise accuracy": row.noise.accuracy,
            "attacked accuracy": row.attacked.accuracy,
            "attacked loss": row.attacked.loss,
        }.items()
    }
    return Diagnosis(
        question="input_dimension",
        source="galloway2019 Tables 6, 7, 13, 14",
        reading="The predicted loss grows with the width of the images; a flat line with "
        "weight decay says that the growth is no property of the dimension.",
        numbers=numbers,
        settings={"n": len(images), "network": network, "eps": ball.eps, "epochs": epochs},
        panels=_panels(scores, factors),
    )


def _network(name: str, features: int, classes: int) -> nn.Module:
    """Return a linear model, or two hidden layers of half the dimension (section 5)."""
    if name == "linear":
        return fully_connected(features, [], classes, [])
    norm = NORMS["batch"]() if name == "mlp+bn" else None
    return fully_connected(features, [features // 2] * 2, classes, [norm, None])


def _noise(data: TrainTestSplit) -> Tensor:
    """Return Gaussian noise with mean zero and the images' own deviation."""
    images = data.test_images
    draws = Draws.of(0, torch.arange(len(images), device=images.device)).stream("noise")
    return images.std() * draws.normal(*images.shape[1:], dtype=images.dtype)


def _panels(
    scores: dict[str, list[DimensionScores]], factors: Sequence[int]
) -> tuple[Panel, ...]:
    x, wide = tuple(map(float, factors)), "width of the images, relative"
    accuracies, losses = [], []
    for name, rows in scores.items():
        columns = {
            k: [getattr(row, k).accuracy for row in rows] for k in DimensionScores._fields
        }
        lines = tuple(Series(name=kind, x=x, y=tuple(y)) for kind, y in columns.items())
        title = f"Accuracy, {name}"
        accuracies.append(
            Panel(kind="lines", title=title, x=wide, y="accuracy", series=lines)
        )
        start = rows[0].attacked.loss
        growths = tuple(row.attacked.loss / start for row in rows)
        losses.append(Series(name=name, x=x, y=growths))
    predicted = tuple(factor / factors[0] for factor in factors)
    losses.append(Series(name="predicted without decay", x=x, y=predicted))
    growth = Panel(
        kind="lines",
        title="Growth of the attacked loss",
        x=wide,
        y="loss, relative to the first width",
        series=tuple(losses),
    )
    return (*accuracies, growth)
