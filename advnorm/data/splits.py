"""Data sets: batches, splits in memory, and three splits with the names of the classes.

A sample's number (``Batch.samples``) is its index in the file or folder that it was read
from. Subsets, splits and orders never change it, so a random draw keyed by it always
belongs to the same sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from advnorm.draws import permutation

_MOMENT_SAMPLES = 5000
_MOMENT_BATCH = 1000


class Batch(NamedTuple):
    """Samples on one device."""

    images: Tensor
    """Float, shape ``(batch, *shape)``, in the set's bounds."""
    labels: Tensor
    """int64, shape ``(batch,)``."""
    samples: Tensor
    """int64, shape ``(batch,)``: the index of each sample in its source."""


class PixelMoments(NamedTuple):
    """Mean and standard deviation per channel, each of shape ``(channels,)``."""

    mean: Tensor
    std: Tensor


class Split(Protocol):
    """Samples that can be read in any order."""

    @property
    def labels(self) -> Tensor:
        """int64, shape ``(n,)``, on the CPU."""

    @property
    def samples(self) -> Tensor:
        """int64, shape ``(n,)``, on the CPU."""

    @property
    def streamed(self) -> bool:
        """Whether each pass reads and decodes files again."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        """Return an image as floats and its label, as a ``Dataset`` of PyTorch does.

        So a split can be passed wherever a ``Dataset`` can.
        """

    def batches(
        self,
        order: Tensor,
        *,
        batch_size: int,
        device: torch.device,
        epoch: int | None = None,
    ) -> Iterator[Batch]:
        """Yield the samples at the positions ``order``; the last batch may be shorter.

        ``epoch`` keys the random crops of image files; ``None`` is evaluation.
        """

    def take(self, positions: Tensor) -> "Split":
        """Return the split of these positions, in this order."""

    def relabel(self, table: Tensor) -> "Split":
        """Return the same samples with the labels ``table[labels]``."""

    def digest(self) -> str:
        """Return a SHA-256 of the content, sample for sample in this order."""


class TensorSplit:
    """A split in memory: uint8 images, in steps of 1/255, or floats.

    It is moved to a device once and cached there; a batch becomes float32 on the device.
    ``epoch`` has no effect here: see :mod:`advnorm.data.augment`.
    """

    streamed = False

    def __init__(
        self, images: Tensor, labels: Tensor, samples: Tensor | None = None
    ) -> None:
        assert len(images) == len(labels) and labels.dtype == torch.int64
        self.images = images
        self.labels = labels
        self.samples = torch.arange(len(labels)) if samples is None else samples
        self._moved: dict[torch.device, Batch] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        """Return an image as floats and its label."""
        return _as_float(self.images[position]), self.labels[position]

    def batches(
        self,
        order: Tensor,
        *,
        batch_size: int,
        device: torch.device,
        epoch: int | None = None,
    ) -> Iterator[Batch]:
        """Yield float32 batches on ``device``."""
        images, labels, samples = self._on(device)
        for rows in torch.split(order.to(device), batch_size):
            yield Batch(_as_float(images[rows]), labels[rows], samples[rows])

    def take(self, positions: Tensor) -> "TensorSplit":
        """Return a copy of these positions."""
        return TensorSplit(
            self.images[positions], self.labels[positions], self.samples[positions]
        )

    def relabel(self, table: Tensor) -> "TensorSplit":
        """Return the same images under other labels."""
        return TensorSplit(self.images, table[self.labels], self.samples)

    def digest(self) -> str:
        """Hash dtype, shape, labels, sample numbers and every image, once."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        content = sha256(f"{self.images.dtype} {tuple(self.images.shape)}".encode())
        for part in (self.labels, self.samples, self.images):
            content.update(part.contiguous().numpy().data)
        return content.hexdigest()

    def _on(self, device: torch.device) -> Batch:
        if device not in self._moved:
            parts = (self.images, self.labels, self.samples)
            self._moved[device] = Batch(*(part.to(device) for part in parts))
        return self._moved[device]


def _as_float(images: Tensor) -> Tensor:
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()


@dataclass(frozen=True)
class DataSet:
    """Three splits of one source, the names of its classes and the bounds of its values."""

    name: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    bounds: tuple[float, float]
    train: Split
    validation: Split
    test: Split

    def moments(self) -> PixelMoments:
        """Return mean and std per channel of the training split, computed once.

        Exact for a split in memory; for image files, from a fixed draw of 5,000 images,
        cropped as in evaluation. A constant channel has std 1.
        """
        return self._moments

    def digest(self) -> str:
        """Return a SHA-256 of the content of the three splits, computed once.

        Neither the set's name nor the place of its files is part of it. Of image files it
        covers paths and sizes, not every byte (see :meth:`StreamedSplit.digest`).

        >>> from advnorm.data import load
        >>> load("digits").digest() == load("digits").digest()
        True
        >>> load("digits").digest() == load("digits", seed=1).digest()
        False
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        parts = (self.train, self.validation, self.test)
        return sha256(" ".join(part.digest() for part in parts).encode()).hexdigest()

    @cached_property
    def _moments(self) -> PixelMoments:
        if not len(self.train):
            raise ValueError(
                f"{self.name} has no training images to compute moments from: "
                "use those of the set that the model was trained on"
            )
        return _compute_moments(self.train)


def _compute_moments(split: Split) -> PixelMoments:
    """Sum in double precision, each channel over samples and pixels."""
    order = torch.arange(len(split))
    if split.streamed:
        order = permutation(len(split), 0, "moments")[:_MOMENT_SAMPLES].sort().values
    count, total, square = 0, torch.zeros(1).double(), torch.zeros(1).double()
    batches = split.batches(order, batch_size=_MOMENT_BATCH, device=torch.device("cpu"))
    for images, _, _ in batches:
        values = (
            images.double().flatten(2) if images.dim() > 2 else images.double()[:, :, None]
        )
        count += values.shape[0] * values.shape[2]
        total = total + values.sum((0, 2))
        square = square + values.square().sum((0, 2))
    mean = total / count
    variance = square / count - mean.square()
    constant = variance <= 1e-12 * (1 + mean.square())  # what rounding leaves of 0
    return PixelMoments(mean.float(), variance.masked_fill(constant, 1.0).sqrt().float())
