"""A split of image files, decoded by worker processes."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from advnorm.data.blob import Blob
from advnorm.data.decode import crop_draws, decode
from advnorm.data.splits import Batch
from advnorm.draws import Draws
from advnorm.files import check_regular, read_bytes

MAX_FILE = 1 << 28
"""Bytes of an image file."""
_REMEDY = "replace it or remove it from the folder"


class ImageStore(Protocol):
    """Encoded images by number."""

    def blob(self, number: int) -> Blob:
        """Return the bytes of one image and its name."""

    def fingerprint(self, number: int) -> bytes:
        """Return bytes that identify an image, wherever the store is."""


class FileStore:
    """Images in a folder, read on demand."""

    def __init__(self, folder: Path, paths: Sequence[str]) -> None:
        self.folder = os.fsencode(folder)
        # One array, not a list: worker processes then share its memory.
        self.paths = np.array([os.fsencode(path) for path in paths])

    def blob(self, number: int) -> Blob:
        """Read one file."""
        path = self._path(number)
        try:
            return Blob(path, read_bytes(path, MAX_FILE), _REMEDY)
        except OSError as error:
            raise _unreadable(path, error) from error

    def fingerprint(self, number: int) -> bytes:
        """Return the file's path in the folder and its size: fast, for a million files."""
        path = self._path(number)
        try:
            state = os.stat(path)
            check_regular(path, state.st_mode)
            return b"%b\0%d" % (self.paths[number], state.st_size)
        except OSError as error:
            raise _unreadable(path, error) from error

    def _path(self, number: int) -> str:
        return os.fsdecode(os.path.join(self.folder, self.paths[number]))


class ArchiveStore:
    """Images of an archive, kept encoded in memory."""

    def __init__(self, blobs: Sequence[Blob]) -> None:
        self.names = np.array([os.fsencode(blob.name) for blob in blobs])
        self.ends = np.cumsum([len(blob.data) for blob in blobs])
        self.data = np.frombuffer(b"".join(blob.data for blob in blobs), np.uint8)
        self.remedy = blobs[0].remedy if blobs else ""

    def blob(self, number: int) -> Blob:
        """Return the bytes of one image and its name."""
        name = os.fsdecode(self.names[number])
        return Blob(name, self._encoded(number).tobytes(), self.remedy)

    def fingerprint(self, number: int) -> bytes:
        """Return the SHA-256 of the encoded image."""
        return sha256(self._encoded(number).data).digest()

    def _encoded(self, number: int) -> NDArray[np.uint8]:
        start = self.ends[number - 1] if number else 0
        return self.data[start : self.ends[number]]


@dataclass(frozen=True, eq=False)
class StreamedSplit:
    """A split of encoded images: decoded, cropped and resized in ``workers`` processes.

    Evaluation (``epoch=None``) takes the central crop, training a random crop keyed by
    (seed, epoch, sample): an image does not depend on workers, batch or order. An image
    that is ``size x size`` already is not cropped.
    """

    store: ImageStore
    labels: Tensor
    samples: Tensor
    channels: int
    size: int
    seed: int
    workers: int
    streamed = True

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        """Decode an image in this process; return it as floats, and its label."""
        order = torch.tensor([range(len(self))[position]])
        alone = replace(self, workers=0)
        (batch,) = alone.batches(order, batch_size=1, device=torch.device("cpu"))
        return batch.images[0], batch.labels[0]

    def batches(
        self,
        order: Tensor,
        *,
        batch_size: int,
        device: torch.device,
        epoch: int | None = None,
    ) -> Iterator[Batch]:
        """Yield float32 batches on ``device``; workers read ahead of it."""
        chunks = torch.split(order, batch_size) if len(order) else ()
        pixels = _PixelBatches(self, chunks, epoch)
        pin = device.type == "cuda"
        loader = DataLoader(
            pixels,
            batch_size=None,
            num_workers=min(self.workers, _processors(), len(chunks)),
            pin_memory=pin,
            generator=torch.Generator(),  # else it draws from the caller's generator
        )
        for rows, images in zip(chunks, loader, strict=True):
            if isinstance(images, str):
                raise ValueError(images)
            moved = images.to(device, non_blocking=pin).float().div_(255)
            yield Batch(moved, self.labels[rows].to(device), self.samples[rows].to(device))

    def take(self, positions: Tensor) -> "StreamedSplit":
        """Return the split of these positions, over the same files."""
        return replace(self, labels=self.labels[positions], samples=self.samples[positions])

    def relabel(self, table: Tensor) -> "StreamedSplit":
        """Return the same files under other labels."""
        return replace(self, labels=table[self.labels])

    def digest(self) -> str:
        """Hash the shape, and each image's number, label, path and file size, once.

        A changed file of the same path and size is not noticed. Of an archive, the encoded
        images themselves are hashed.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        content = sha256(f"{self.channels} {self.size}".encode())
        for label, sample in zip(self.labels.tolist(), self.samples.tolist(), strict=True):
            fingerprint = self.store.fingerprint(sample)
            content.update(b"\n%d %d %d " % (label, sample, len(fingerprint)) + fingerprint)
        return content.hexdigest()

    def read(self, rows: Tensor, epoch: int | None) -> Tensor:
        """Decode the images at these positions: uint8 ``(rows, channels, size, size)``."""
        samples = self.samples[rows]
        images = np.empty((len(rows), self.channels, self.size, self.size), np.uint8)
        uniform: Sequence[Tensor | None] = [None] * len(rows)
        if epoch is not None:
            uniform = crop_draws(
                Draws.of(self.seed, samples).stream("folder", epoch)
            ).unbind()
        for row, sample in enumerate(samples.tolist()):
            blob = self.store.blob(sample)
            images[row] = decode(blob, uniform[row], channels=self.channels, size=self.size)
        return torch.from_numpy(images)


class _PixelBatches(Dataset[Tensor | str]):
    """Item i is the i-th batch, so that a worker decodes whole batches.

    An error is returned as its message: a worker would wrap it into a traceback.
    """

    def __init__(
        self, split: StreamedSplit, chunks: Sequence[Tensor], epoch: int | None
    ) -> None:
        self.split, self.chunks, self.epoch = split, chunks, epoch

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, number: int) -> Tensor | str:
        try:
            return self.split.read(self.chunks[number], self.epoch)
        except ValueError as error:
            return str(error)


def _unreadable(path: str, error: OSError) -> ValueError:
    return Blob(path, b"", _REMEDY).error(f"cannot be read ({error.strerror})")


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
