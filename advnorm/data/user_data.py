"""Data of the user's own, passed in Python: arrays, a Dataset or a DataLoader.

All of it is read into memory once, so that a run sees the same images in every epoch and a
resumed run goes on bitwise. Random transforms belong into ``data.augment``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from advnorm.data import formats
from advnorm.data.blob import Blob
from advnorm.data.registry import DATA, DataRequest, image_set, split_off_test
from advnorm.data.splits import DataSet, TensorSplit

_IN_USE: ContextVar[DataSet | None] = ContextVar("user data", default=None)
_DATA = Blob(
    "data", b"", "pass (images, labels), a Dataset, or {'train': ..., 'test': ...}"
)


@contextmanager
def use_data(data: DataSet | None) -> Iterator[None]:
    """Let ``data.name=python`` be this data during a block, and no longer."""
    token = _IN_USE.set(data if data is not None else _IN_USE.get())
    try:
        yield
    finally:
        _IN_USE.reset(token)


@DATA.register("python")
def python(request: DataRequest) -> DataSet:
    """Your own arrays, Dataset or DataLoader: ``advnorm.train(..., data=...)``."""
    request.refuse_argument()
    data = _IN_USE.get()
    if data is None:
        raise ValueError(
            "the data were passed in Python: pass them again as data=, or train on a file "
            "of them (numpy.savez, data.name=npz:PATH) to use the command line"
        )
    return data


def digest_of(data: DataSet) -> str:
    """Return a SHA-256 of the user's images and labels, whatever splits are drawn later."""
    return sha256(f"{data.train.digest()} {data.test.digest()}".encode()).hexdigest()


def check_digest(name: str, digest: str | None) -> None:
    """Refuse data passed in Python that differ from those that the run began with."""
    data = _IN_USE.get()
    if name == "python" and digest and data is not None and digest_of(data) != digest:
        raise ValueError(
            "the data passed in Python are not those that the run began with (by their "
            "SHA-256): pass the same images and labels, in the same order"
        )


def as_data_set(data: Any) -> DataSet:
    """Return the user's data as a set with training and test images.

    ``data`` is ``(images, labels)``, a ``Dataset`` or a ``DataLoader``, of which 20% become
    the test split; or a pair ``(train, test)`` or a dictionary of two of these.
    """
    if isinstance(data, DataSet):
        return data
    parts = [_arrays(part) for part in _parts(data)]
    if any(not len(part[0]) for part in parts):
        raise ValueError(
            "the data have a split without any image: give images of each class"
        )
    labels = {f"y_{i}": part[1] for i, part in zip(("train", "test"), parts, strict=False)}
    classes = formats.npz_classes(_DATA, labels)
    if any(part[1].dtype.kind not in "iu" for part in parts):
        raise ValueError("the labels are not integers: give one class index per image")
    if len(classes) < 2:
        raise ValueError(f"the data have {len(classes)} class: give at least 2 classes")
    splits = [formats.npz_split(_DATA, *part, classes=len(classes)) for part in parts]
    if len(splits) == 1:
        splits = [cast(TensorSplit, split) for split in split_off_test(splits[0])]
    return image_set(classes, *splits)


def _parts(data: Any) -> list[Any]:
    """Return one source, or the training and the test source."""
    if isinstance(data, Mapping):
        if set(data) != {"train", "test"}:
            raise ValueError(
                f"data has the keys {', '.join(map(str, data)) or 'of nothing'}: give "
                "'train' and 'test'"
            )
        return [data["train"], data["test"]]
    pair = isinstance(data, tuple | list) and len(data) == 2
    return list(data) if pair and not _is_array(data[0]) else [data]


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _arrays(source: Any) -> tuple[Any, Any]:
    """Return the images and labels of one source as arrays."""
    if isinstance(source, tuple | list) and len(source) == 2 and _is_array(source[0]):
        images, labels = source
    elif _is_array(source):
        raise ValueError("the data have no labels: give (images, labels)")
    else:
        images, labels = _read(source)
    return _array(images), np.asarray(_array(labels))


def _array(values: Any) -> Any:
    return (
        values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    )


def _read(source: Any) -> tuple[Tensor, Tensor]:
    """Read every sample of a Dataset or DataLoader, once."""
    if isinstance(source, DataLoader) and hasattr(source.dataset, "__getitem__"):
        source = source.dataset  # in its own order, which a loader may shuffle
    if isinstance(source, DataLoader):
        images, labels = zip(*map(_pair, source), strict=True)
        return torch.cat(images), torch.cat([torch.as_tensor(y) for y in labels])
    if not (hasattr(source, "__getitem__") and hasattr(source, "__len__")):
        raise ValueError(
            f"data is a {type(source).__name__}: pass (images, labels), a Dataset or a "
            "DataLoader"
        )
    first, again = (_array(_pair(source[0])[0]) for _ in range(2))
    if not np.array_equal(first, again):
        raise ValueError(
            "the data set returns another image each time that it is asked: leave out its "
            "random transforms, and set data.augment"
        )
    pairs = [_pair(source[index]) for index in range(len(source))]
    pixels = [torch.from_numpy(np.ascontiguousarray(_array(x))) for x, _ in pairs]
    return torch.stack(pixels), torch.as_tensor([int(y) for _, y in pairs])


def _pair(sample: Any) -> tuple[Any, Any]:
    if isinstance(sample, tuple | list) and len(sample) == 2:
        return sample[0], sample[1]
    raise ValueError("the data have no labels: each sample is (image, label)")
