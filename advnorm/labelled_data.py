"""Images and labels as people have them: tensors, arrays, lists, Datasets, DataLoaders."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

Array: TypeAlias = Tensor | NDArray[Any] | Sequence[Any]
LabelledData: TypeAlias = Dataset[Any] | DataLoader[Any]
"""What yields ``(images, labels)``, a sample or a batch at a time."""

_IMAGES = ("images", "image", "pixel_values", "img")
_LABELS = ("labels", "label")


def read_samples(images: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return images and labels as tensors.

    Without labels, ``images`` is a Dataset or a DataLoader of both. It is read once, in its
    order and into memory, so that every condition sees the same images, also where they
    are shuffled or augmented. The global random state stays as it was.

    >>> pairs = [([0.0, 0.5], 1), ([1.0, 0.0], 0)]
    >>> images, labels = read_samples(pairs, None)
    >>> tuple(images.shape), labels.tolist()
    ((2, 2), [1, 0])
    """
    if labels is None:
        return _read(images)
    if isinstance(images, Dataset | DataLoader):
        raise ValueError(
            f"a {type(images).__name__} has labels of its own, and other labels came with "
            "it: pass None for labels, and name the threat (threat=...)"
        )
    return as_tensor(images, "images"), as_tensor(labels, "labels")


def as_tensor(values: Any, name: str) -> Tensor:
    """Return an array or a list of numbers as a tensor."""
    if isinstance(values, Tensor):
        return values
    try:
        if isinstance(values, list | tuple) and values:
            if isinstance(values[0], Tensor):
                return torch.stack(list(values))
            if isinstance(values[0], np.ndarray):
                values = np.stack(values)  # torch.as_tensor is slow here, and warns
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name} are a tensor, a NumPy array or a list of numbers, not "
            f"{type(values).__name__}"
        ) from None


def _read(source: Any) -> tuple[Tensor, Tensor]:
    kind = type(source).__name__
    if isinstance(source, Tensor | np.ndarray | Mapping | str) or not _can_read(source):
        raise ValueError(
            f"labels are missing, and a {kind} has none: pass labels, or a Dataset or "
            "DataLoader of (images, labels) in the place of images"
        )
    with torch.random.fork_rng(devices=[]):  # a DataLoader draws from the global generator
        parts = [_batch(item, kind) for item in _items(source)]
    if not parts:
        raise ValueError(f"the {kind} is empty: there are no images")
    shapes = {tuple(images.shape[1:]) for images, _ in parts}
    if len(shapes) > 1:
        raise ValueError(
            f"the images of the {kind} differ in shape, such as {_two(shapes)}: resize or "
            "crop them in its transform"
        )
    images, labels = zip(*parts, strict=True)
    return torch.cat(images), torch.cat(labels)


def _can_read(source: Any) -> bool:
    return isinstance(source, Iterable) or hasattr(source, "__getitem__")


def _items(source: Any) -> Iterator[Any]:
    """Yield the batches of a loader, or the samples of a data set."""
    samples = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if samples and not isinstance(source, DataLoader):
        return (source[number] for number in range(len(source)))
    return iter(source)


def _batch(item: Any, kind: str) -> tuple[Tensor, Tensor]:
    """Return images and labels of a batch, or of one sample."""
    images, labels = _pair(item, kind)
    y = as_tensor(labels, f"labels of the {kind}")
    x = as_tensor(images, f"images of the {kind}")
    if not y.ndim:  # one sample
        x, y = x[None], y[None]
    if y.ndim != 1 or len(x) != len(y):
        raise ValueError(
            f"a batch of the {kind} has images of shape {tuple(x.shape)} and labels of "
            f"shape {tuple(y.shape)}: it must have one class index per image"
        )
    return x, y


def _pair(item: Any, kind: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        images = next((item[key] for key in _IMAGES if key in item), None)
        labels = next((item[key] for key in _LABELS if key in item), None)
        if images is not None and labels is not None:
            return images, labels
    elif isinstance(item, tuple | list) and len(item) > 1:
        return item[0], item[1]
    raise ValueError(
        f"an item of the {kind} is a {type(item).__name__}: it must be (images, labels), "
        "or a dict with 'images' and 'labels'"
    )


def _two(shapes: set[tuple[int, ...]]) -> str:
    return " and ".join(map(str, sorted(shapes)[:2]))
