"""What a caller hands over: a model and samples of theirs, in whatever state."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.data import Batch
from advnorm.evaluate.checks import check_images, check_labels, check_radius
from advnorm.evaluate.engine import check, search_dtype
from advnorm.threat import Bounds, Threat


@contextmanager
def by_itself() -> Iterator[None]:
    """Judge with gradients, and alone, whatever mode and process group the caller is in."""
    with torch.inference_mode(mode=False), ranks.apart():
        yield


def usable(model: nn.Module) -> nn.Module:
    """Copy a model made in inference mode: no gradient may pass through its tensors."""
    tensors = chain(model.parameters(), model.buffers())
    return deepcopy(model) if any(t.is_inference() for t in tensors) else model


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's weights; without any, the CPU."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@dataclass(frozen=True)
class Samples:
    """Images and labels as they were given."""

    images: Tensor
    labels: Tensor
    bounds: Bounds

    def check(self, model: nn.Module, threats: Sequence[Threat]) -> int:
        """Look at all images, labels and radii, and the logits of a few; count classes."""
        self.check_images(threats)
        classes = check(model, next(self.batches(model, 8)), bounds=self.bounds)
        check_labels(self.labels, count=len(self.images), classes=classes)
        return classes

    def check_images(self, threats: Sequence[Threat]) -> None:
        """Look at all images and radii."""
        check_images(self.images, self.bounds)
        for threat in threats:
            check_radius(threat, self.images.shape[1:])

    def batches(self, model: nn.Module, size: int) -> Iterator[Batch]:
        """Yield tensors of our own, in the search's precision and exactly in the bounds."""
        device = device_of(model)
        for start in range(0, len(self.images), size):
            rows = slice(start, start + size)
            images = self.images[rows].detach().to(device, search_dtype(model))
            labels = self.labels[rows].to(device, copy=True)
            yield Batch(
                images.clamp(*self.bounds),
                labels if labels.is_floating_point() else labels.long(),
                torch.arange(start, start + len(images), device=device),
            )
