"""The model and samples of the caller, converted to what an evaluation works with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.data import Batch
from advnorm.evaluation.engine import check_model, search_dtype
from advnorm.evaluation.inputs import (
    check_count,
    check_images,
    check_labels,
    check_radius,
)
from advnorm.labelled_data import read_samples
from advnorm.threat import Bounds, Threat

AnyModel: TypeAlias = nn.Module | Callable[[Tensor], Any]
"""From images to logits: a tensor, ``(logits, ...)``, or what has ``logits``."""


@contextmanager
def isolated() -> Iterator[None]:
    """Enable gradients and ignore process groups, whatever the caller has set."""
    with torch.inference_mode(mode=False), ranks.single_process():
        yield


class FunctionModel(nn.Module):
    """A plain function in the place of a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Any:
        """Call it."""
        return self.function(images)


def as_module(model: AnyModel) -> nn.Module:
    """Return a module that can be attacked: of a function, or of inference tensors too.

    A model made in inference mode is copied: no gradient may pass through its tensors.
    """
    if isinstance(model, type):
        raise ValueError(f"the model is the class {model.__name__}: make one, and load it")
    if not isinstance(model, nn.Module):
        if not callable(model):
            raise ValueError(
                f"the model is a {type(model).__name__}: give a torch.nn.Module, or a "
                "function from images to logits"
            )
        return FunctionModel(model)
    tensors = chain(model.parameters(), model.buffers())
    return deepcopy(model) if any(t.is_inference() for t in tensors) else model


def as_samples(images: Any, labels: Any, bounds: Bounds) -> "Samples":
    """Read images and labels of any form: see :mod:`advnorm.labelled_data`."""
    return Samples(*read_samples(images, labels), bounds)


@dataclass(frozen=True)
class Samples:
    """Images and labels as they were given."""

    images: Tensor
    labels: Tensor
    bounds: Bounds

    def check(self, model: nn.Module, threats: Sequence[Threat]) -> int:
        """Check all images, labels and radii, and a few logits; return the classes."""
        self.check_images(threats)
        classes = check_model(model, next(self.batches(model, 8)), bounds=self.bounds)
        check_labels(self.labels, count=len(self.images), classes=classes)
        return classes

    def check_images(self, threats: Sequence[Threat]) -> None:
        """Check all images and radii, and the number of labels."""
        check_images(self.images, self.bounds)
        check_count(self.labels, count=len(self.images))
        for threat in threats:
            check_radius(threat, self.images.shape[1:])

    def batches(self, model: nn.Module, size: int) -> Iterator[Batch]:
        """Yield copies in the precision of the search, clipped exactly to the bounds."""
        device = next((p.device for p in model.parameters()), self.images.device)
        for start in range(0, len(self.images), size):
            rows = slice(start, start + size)
            images = self.images[rows].detach().to(device, search_dtype(model))
            labels = self.labels[rows].to(device, copy=True)
            yield Batch(
                images.clamp(*self.bounds),
                labels.long(),
                torch.arange(start, start + len(images), device=device),
            )
