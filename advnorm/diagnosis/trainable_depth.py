r"""How deep can a batch-normalized network be? (galloway2019; Yang et al., 2019).

Behind batch norm, the gradient of a random ReLU network of infinite width grows from layer
to layer (https://arxiv.org/abs/1902.08129, Theorem 3.10) by

.. math::
    \lambda_B = \frac{1}{B - 3} \left(
    \frac{B - 1 + J'\bigl(\tfrac{-1}{B - 1}\bigr)}{1 - J\bigl(\tfrac{-1}{B - 1}\bigr)} - 1
    \right), \qquad J(c) = \frac{\sqrt{1 - c^2} + (\pi - \arccos c)\, c}{\pi}

for batches of B, which falls to :math:`\pi / (\pi - 1) \approx 1.467`. Networks train up to
a multiple of the depth scale :math:`\xi = 1 / \log \lambda_B`; 16 of them are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import acos, log, pi, sqrt

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, frozen_eval, image_bounds
from advnorm.diagnosis.registry import Count, Counts, question
from advnorm.diagnosis.small_networks import (
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
from advnorm.threat import Linf, Threat

_SCALES = 16  # trainable depth scales, Yang et al., Fig. 3
_TRAVEL = 6.0  # learning rate x steps of the paper: 1e-5 B x 10 epochs x 60,000 / B
_NOISE, _EPS, _STEPS = 0.25, 0.1, 10
_TITLES = {"clean": "Clean", "noise": "In noise", "bim": "Attacked (BIM)"}


def gradient_growth(batch_size: int) -> float:
    """Return how much the squared gradient grows per layer, for batches of 4 or more.

    >>> round(gradient_growth(10_000), 3), round(gradient_growth(8), 3)
    (1.467, 1.788)
    """
    if batch_size < 4:
        raise ValueError(f"the theory needs batches of 4 or more samples, not {batch_size}")
    c = -1 / (batch_size - 1)
    slope = (pi - acos(c)) / pi
    kernel = sqrt(1 - c * c) / pi + slope * c
    return ((batch_size - 1 + slope) / (1 - kernel) - 1) / (batch_size - 3)


def max_trainable_depth(batch_size: int) -> float:
    """Return the theoretical maximum trainable depth, in layers.

    >>> round(max_trainable_depth(256), 1)
    41.3
    """
    return _SCALES / log(gradient_growth(batch_size))


@dataclass(frozen=True)
class DepthGrid:
    """The networks that are trained."""

    depths: Sequence[int]
    batch_sizes: Sequence[int]
    width: int = 384
    epochs: int = 10
    lr: float | None = None
    """Per sample: the learning rate of a step is this times its batch. The paper: 1e-5."""
    c: float = 1e-3
    seed: int = 0


def measure_depth_grid(
    data: TrainTestSplit,
    grid: DepthGrid,
    *,
    norm: bool,
    threat: Threat | None = None,
    progress: Progress = QUIET,
) -> dict[str, Tensor]:
    """Train every network of the grid; accuracies ``(depths, batch sizes)`` by name.

    Only the bounds of ``threat`` are used; the attack is the paper's.
    """
    total = len(grid.depths) * len(grid.batch_sizes)
    rows = []
    for depth in grid.depths:
        for size in grid.batch_sizes:
            model = _network(data, grid, depth, size, norm=norm)
            rows.append(_accuracies(model, data, Linf(_EPS, image_bounds(threat))))
            progress.update(len(rows), total, f"{depth} layers, batches of {size}")
    shape = len(grid.depths), len(grid.batch_sizes)
    return {key: torch.tensor([row[key] for row in rows]).view(shape) for key in rows[0]}


@question("trainable_depth")
def trainable_depth(
    model: nn.Module | None,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    depths: Counts = (5, 20, 40, 60),
    batch_sizes: Counts = (8, 32),
    width: Count = 64,
    epochs: Count = 10,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Accuracy over depth and batch size, with the limit (galloway2019 Figs. 2, 6).

    The limit is the theoretical maximum trainable depth. Fully connected ReLU networks are
    trained on half of each class and tested on the other half, with and without batch norm;
    the given model is not used. The paper uses MNIST, width 384 and a learning rate of 1e-5
    per sample; with fewer images the learning rate is larger, so that learning rate times
    steps is the same.
    """
    numbers = {f"deepest for batches of {b}": max_trainable_depth(b) for b in batch_sizes}
    data, grid = (
        split_train_test(images, labels),
        DepthGrid(depths, batch_sizes, width, epochs),
    )
    accuracies = {
        name: measure_depth_grid(data, grid, norm=norm, threat=threat, progress=progress)
        for name, norm in (("batch norm", True), ("no norm", False))
    }
    for name, tables in accuracies.items():
        for row, depth in zip(tables["clean"].tolist(), depths, strict=True):
            for accuracy, size in zip(row, batch_sizes, strict=True):
                numbers[f"{name}, {depth} layers, batches of {size}"] = accuracy
    return Diagnosis(
        question="trainable_depth",
        source="galloway2019 Figs. 2, 6",
        reading="With batch norm, networks deeper than the theoretical limit (the upright "
        "lines) stay at chance; the limit rises with the batch size and soon no more.",
        numbers=numbers,
        settings={"n": len(images), "width": width, "epochs": epochs},
        panels=(
            *(
                _panel(name, kind, table, grid, limits=name == "batch norm")
                for name, tables in accuracies.items()
                for kind, table in tables.items()
            ),
            _limit(batch_sizes),
        ),
    )


def _network(
    data: TrainTestSplit, grid: DepthGrid, depth: int, size: int, *, norm: bool
) -> nn.Module:
    classes = int(max(data.labels.max(), data.test_labels.max())) + 1
    layer = NORMS["batch"](eps=grid.c) if norm else None
    lr = grid.lr or _TRAVEL / (grid.epochs * len(data.images))
    options = SGDOptions(grid.epochs, lr * size, size, seed=grid.seed)
    widths = [grid.width] * depth
    features = data.images[0].numel()
    return train_network(
        lambda: fully_connected(features, widths, classes, [layer] * depth),
        data.images,
        data.labels,
        options,
    )


def _accuracies(model: nn.Module, data: TrainTestSplit, threat: Threat) -> dict[str, float]:
    images, labels = data.test_images, data.test_labels
    draws = Draws.of(0, torch.arange(len(images), device=images.device)).stream("noise")
    noise = _NOISE * draws.normal(*images.shape[1:], dtype=images.dtype)
    step = 2.5 * threat.eps / _STEPS
    with frozen_eval(model):
        attacked = attack_with_bim(
            model, images, labels, threat, steps=_STEPS, step_size=step
        )
    shown = {"clean": images, "noise": images + noise, "bim": attacked}
    return {name: evaluate_network(model, x, labels).accuracy for name, x in shown.items()}


def _panel(name: str, kind: str, table: Tensor, grid: DepthGrid, *, limits: bool) -> Panel:
    depths = tuple(map(float, grid.depths))
    lines = [
        Series(name=f"batches of {size}", x=depths, y=tuple(table[:, column].tolist()))
        for column, size in enumerate(grid.batch_sizes)
    ]
    upright = [
        Series(name=f"limit of {size}", x=(max_trainable_depth(size),) * 2, y=(0.0, 1.0))
        for size in (grid.batch_sizes if limits else ())
    ]
    return Panel(
        kind="lines",
        title=f"{_TITLES[kind]}, {name}",
        x="depth, layers",
        y="accuracy",
        series=(*lines, *upright),
    )


def _limit(batch_sizes: Sequence[int]) -> Panel:
    sizes = sorted({*batch_sizes, 4, 8, 16, 32, 64, 128, 256})
    return Panel(
        kind="lines",
        title="Theoretical maximum depth with batch norm",
        x="batch size",
        y="layers",
        series=(
            Series(
                name="16 depth scales",
                x=tuple(map(float, sizes)),
                y=tuple(max_trainable_depth(size) for size in sizes),
            ),
        ),
    )
