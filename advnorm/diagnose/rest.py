"""Look at a model without a trace: what every question of trained weights shares."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from advnorm.norms import Mode, mode
from advnorm.scoped import evaluating, frozen
from advnorm.threat import Bounds, Threat

BATCH = 256
"""Samples a pass, where a question is free to choose."""


@contextmanager
def resting(model: nn.Module, statistics: Mode = "running") -> Iterator[None]:
    """Freeze a model in evaluation for a block; its norms use the statistics named."""
    if statistics == "train":
        raise ValueError("a diagnosis does not move statistics: write batch or running")
    with evaluating(model), frozen(model), mode(model, statistics):
        yield


def needed(threat: Threat | None, question: str) -> Threat:
    """Return the threat that a question cannot do without."""
    if threat is None:
        raise ValueError(f"{question} needs a threat, such as threat=Linf(8/255)")
    return threat


def box(threat: Threat | None) -> Bounds:
    """Return the smallest and the largest value of a valid image."""
    return (0.0, 1.0) if threat is None else threat.bounds


def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits without gradients, a part at a time."""
    with torch.no_grad():
        return torch.cat([model(part) for part in torch.split(images, BATCH)])


def values(tensor: Tensor) -> tuple[float, ...]:
    """Return the entries as a record holds them."""
    return tuple(tensor.detach().double().flatten().tolist())
