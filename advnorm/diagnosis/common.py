"""What several questions share: a frozen model, logits and attacks in batches, progress."""

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
"""The largest batch of a forward pass whose result does not depend on the batch."""
QUIET: Progress = Quiet()
"""Where progress goes by default: nowhere."""


@contextmanager
def frozen_eval(model: nn.Module, statistics: Mode = "running") -> Iterator[None]:
    """Put a model in evaluation mode without gradients of parameters, then restore it.

    Its norms use the statistics named.
    """
    check_statistics_mode(statistics)
    with eval_mode(model), frozen_parameters(model), mode(model, statistics):
        yield


def check_statistics_mode(statistics: Mode) -> None:
    """Refuse the mode that updates running statistics: a diagnosis changes no model."""
    if statistics == "train":
        raise ValueError(
            "a diagnosis must not update running statistics: set statistics to batch or "
            "running"
        )


def image_bounds(threat: Threat | None) -> Bounds:
    """Return the smallest and the largest value of a valid image."""
    return (0.0, 1.0) if threat is None else threat.bounds


def predict_logits(
    model: nn.Module, images: Tensor, *, batch_size: int | None = None
) -> Tensor:
    """Return the logits without gradients, computed in batches."""
    batches = torch.split(images, batch_size or BATCH)
    with torch.no_grad():
        return torch.cat([model(batch) for batch in batches])


def stratified_halves(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of two halves, with the samples of each class split evenly.

    Data may be sorted by class, or alternate between classes, so that taking every other
    sample could select one class only.

    >>> stratified_halves(torch.tensor([0, 1, 0, 1, 0, 1, 0]))
    (tensor([0, 1, 4, 5]), tensor([2, 3, 6]))
    """
    order = labels.argsort(stable=True)
    return order[0::2].sort().values, order[1::2].sort().values


def attack_batch_size(count: int) -> int:
    """Return how many samples are attacked at a time: at least 8 batches show progress.

    >>> attack_batch_size(20), attack_batch_size(200), attack_batch_size(10_000)
    (16, 25, 256)
    """
    return min(BATCH, max(16, -(-count // 8)))


def attack_in_batches(
    attack: Callable[[Tensor], Tensor],
    images: Tensor,
    text: str,
    progress: Progress,
    *,
    batch_size: int | None = None,
) -> Tensor:
    """Return the adversarial images of all samples; ``attack`` is given their indices."""
    adversarial: list[Tensor] = []
    progress.update(0, len(images), text)
    indices = torch.arange(len(images), device=images.device)
    for rows in torch.split(indices, batch_size or attack_batch_size(len(images))):
        adversarial.append(attack(rows))
        progress.update(int(rows[-1]) + 1, len(images), text)
    return torch.cat(adversarial)


def count_passes(model: LogitsFn, progress: Progress, total: int, text: str) -> LogitsFn:
    """Return the model with every pass reported, out of ``total`` at most."""
    done = 0
    progress.update(done, total, text)

    def forward(images: Tensor) -> Tensor:
        nonlocal done
        done = min(done + 1, total)
        progress.update(done, total, text)
        return model(images)

    return forward


def to_floats(tensor: Tensor) -> tuple[float, ...]:
    """Return the entries as a record stores them."""
    return tuple(tensor.detach().double().flatten().tolist())
