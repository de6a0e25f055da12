"""Look at a model without a trace: what every question of trained weights shares."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from advnorm.attacks import LogitsFn
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.norms import Mode, mode
from advnorm.progress import Progress, Quiet
from advnorm.threat import Bounds, Threat

BATCH = 256
"""Samples a pass, where a question is free to choose."""


@contextmanager
def frozen_eval(model: nn.Module, statistics: Mode = "running") -> Iterator[None]:
    """Freeze a model in evaluation for a block; its norms use the statistics named."""
    if statistics == "train":
        raise ValueError("a diagnosis does not move statistics: write batch or running")
    with eval_mode(model), frozen_parameters(model), mode(model, statistics):
        yield


def require_threat(threat: Threat | None, question: str) -> Threat:
    """Return the threat that a question cannot do without."""
    if threat is None:
        raise ValueError(f"{question} needs a threat, such as threat=Linf(8/255)")
    return threat


def image_bounds(threat: Threat | None) -> Bounds:
    """Return the smallest and the largest value of a valid image."""
    return (0.0, 1.0) if threat is None else threat.bounds


def predict_logits(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits without gradients, a part at a time."""
    with torch.no_grad():
        return torch.cat([model(part) for part in torch.split(images, BATCH)])


def stratified_halves(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions of two halves, with as many samples of each class as can be.

    Data may come class by class, or the classes by turns, so that every other sample could
    be of the same class.

    >>> stratified_halves(torch.tensor([0, 1, 0, 1, 0, 1, 0]))
    (tensor([0, 1, 4, 5]), tensor([2, 3, 6]))
    """
    order = labels.argsort(stable=True)
    return order[0::2].sort().values, order[1::2].sort().values


def attack_batch_size(count: int) -> int:
    """Return how many of the samples are attacked at a time: the time left is soon known.

    >>> attack_batch_size(20), attack_batch_size(200), attack_batch_size(10_000)
    (16, 25, 256)
    """
    return min(BATCH, max(16, -(-count // 8)))


def attack_in_batches(
    search: Callable[[Tensor], Tensor],
    images: Tensor,
    text: str,
    progress: Progress | None,
) -> Tensor:
    """Return what a search finds for the images, some of their numbers at a time."""
    progress, found = progress or Quiet(), list[Tensor]()
    progress.update(0, len(images), text)
    numbers = torch.arange(len(images), device=images.device)
    for rows in torch.split(numbers, attack_batch_size(len(images))):
        found.append(search(rows))
        progress.update(int(rows[-1]) + 1, len(images), text)
    return torch.cat(found)


def count_passes(
    model: LogitsFn, progress: Progress | None, total: int, text: str
) -> LogitsFn:
    """Return the model so that every pass is reported, of ``total`` at most."""
    if progress is None:
        return model
    done = 0
    progress.update(done, total, text)

    def passing(images: Tensor) -> Tensor:
        nonlocal done
        done = min(done + 1, total)
        progress.update(done, total, text)
        return model(images)

    return passing


def to_floats(tensor: Tensor) -> tuple[float, ...]:
    """Return the entries as a record holds them."""
    return tuple(tensor.detach().double().flatten().tolist())
