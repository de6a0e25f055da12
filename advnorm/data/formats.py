"""From bytes to arrays: IDX, the CIFAR binaries, MATLAB, npy and npz.

Every error names the file. Images are returned as ``(n, C, H, W)``.
"""

import gzip
import io
import struct
import zlib
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from advnorm.data import matlab
from advnorm.data.archives import (
    GZIP,
    BoundedReader,
    RefusedError,
    expansion_limit,
    members,
)
from advnorm.data.blob import Blob
from advnorm.data.splits import TensorSplit

Array = NDArray[Any]
_CIFAR_PIXELS = 3 * 32 * 32
_COLOURS = (1, 3)


def idx(blob: Blob, *, dimensions: int) -> Array:
    """Read an IDX file of bytes (LeCun et al., 1998), gzipped or not.

    Two zero bytes, the type (8: unsigned byte), the number of dimensions, the big-endian
    32-bit sizes, then the values, the last dimension fastest.
    """
    blob = _ungzip(blob)
    magic = bytes((0, 0, 8, dimensions))
    if blob.data[:4] != magic:
        raise blob.error(f"begins with {blob.data[:4].hex()}, not the IDX {magic.hex()}")
    start = 4 + 4 * dimensions
    if len(blob.data) < start:
        raise blob.error("is cut short in its header")
    sizes = struct.unpack(f">{dimensions}I", blob.data[4:start])
    if len(blob.data) != start + prod(sizes):
        raise blob.error(f"has {len(blob.data)} bytes, not {start + prod(sizes)}")
    return np.frombuffer(blob.data, np.uint8, offset=start).reshape(sizes)


def cifar(blobs: Sequence[Blob], *, label_bytes: int, classes: int) -> TensorSplit:
    """Read CIFAR binary files: records of labels, then 32x32 red, green and blue bytes.

    CIFAR-10 has one label byte, CIFAR-100 a coarse and a fine one; the last one counts.
    """
    record = label_bytes + _CIFAR_PIXELS
    images, labels = [], []
    for blob in blobs:
        if not blob.data or len(blob.data) % record:
            raise blob.error(
                f"has {len(blob.data)} bytes, which is no multiple of {record}"
            )
        rows = np.frombuffer(blob.data, np.uint8).reshape(-1, record)
        images.append(rows[:, label_bytes:].reshape(-1, 3, 32, 32))
        labels.append(_labels(blob, rows[:, label_bytes - 1], classes))
    return _tensors(np.concatenate(images), np.concatenate(labels))


def svhn(blob: Blob) -> TensorSplit:
    """Read a file of SVHN's cropped digits: ``X (32, 32, 3, n)`` and ``y``, 10 for 0."""
    content = matlab.arrays(blob)
    for name in ("X", "y"):
        if name not in content:
            raise blob.error(f"has no array {name!r}")
    images, labels = content["X"], content["y"].ravel()
    if images.ndim != 4 or images.dtype != np.uint8:
        raise blob.error(f"has X of {images.dtype}{images.shape}, not uint8 (32, 32, 3, n)")
    images = images.transpose(3, 2, 0, 1)
    return paired(blob, images, blob, np.where(labels == 10, 0, labels), classes=10)


def npy(blob: Blob) -> Array:
    """Read one array, never a pickle."""
    try:
        array = np.lib.format.read_array(io.BytesIO(blob.data), allow_pickle=False)
    except Exception as error:  # a damaged header may have any shape, type or nesting
        kind = type(error).__name__
        raise blob.error(
            f"is cut short, has Python objects or is no npy file ({kind}: {error})"
        ) from None
    if not array.dtype.itemsize:
        raise blob.error(f"has values of no bytes ({array.dtype})")
    return np.asarray(array)


def npy_pair(images: Blob, labels: Blob, *, classes: int) -> TensorSplit:
    """Read a file of images and a file of their labels."""
    pixels = channels_first(images, npy(images))
    return paired(images, pixels, labels, npy(labels), classes=classes)


def npz(blob: Blob) -> dict[str, Array]:
    """Read all arrays of an npz file, never a pickle."""
    if not blob.data.startswith(b"PK"):
        raise blob.error("is no npz file")
    return {
        member.name.removeprefix(f"{blob.name}/").removesuffix(".npy"): npy(member)
        for member in members(blob, lambda name: name.endswith(".npy"), remedy=blob.remedy)
    }


def npz_names(blob: Blob, arrays: dict[str, Array]) -> list[tuple[str, str]]:
    """Return the (images, labels) names of an npz file: two splits, or one."""
    splits = [("x_train", "y_train"), ("x_test", "y_test")]
    if "images" in arrays and "labels" in arrays:
        return [("images", "labels")]
    if "images" in arrays and "x_train" not in arrays:
        raise blob.error("has images but no labels; add an array 'labels'")
    absent = [name for pair in splits for name in pair if name not in arrays]
    if absent:
        raise blob.error(
            f"has no {', '.join(absent)} (it has {', '.join(arrays) or 'nothing'}; "
            "x_train, y_train, x_test and y_test are needed, or images and labels)"
        )
    return splits


def npz_classes(blob: Blob, arrays: dict[str, Array]) -> tuple[str, ...]:
    """Return the names of an npz file's classes; labels without names are 0 to k - 1."""
    if "classes" in arrays:
        if arrays["classes"].ndim != 1:
            raise blob.error("has an array 'classes' that is no list of names")
        return tuple(str(name) for name in arrays["classes"])
    labels = [arrays[key] for key in ("y_train", "y_test", "labels") if key in arrays]
    whole = [array for array in labels if array.dtype.kind in "iu"]
    classes = sorted({int(label) for array in whole for label in np.unique(array)})
    if classes != list(range(len(classes))):
        shown = ", ".join(str(label) for label in [*classes[:5], *classes[5:][-1:]])
        last = len(classes) - 1
        raise blob.error(
            f"has {len(classes)} different labels ({shown}) that are not 0 to {last}; "
            f"number the classes 0 to {last} without a gap"
        )
    return tuple(map(str, classes))


def npz_split(blob: Blob, images: Array, labels: Array, *, classes: int) -> TensorSplit:
    """Return one split of an npz file: uint8 images, or finite floats in [0, 1]."""
    if not images.size:
        raise blob.error(f"has a split without any image (shape {images.shape}); fill it")
    if images.dtype.kind == "f":
        if not np.isfinite(images).all():
            raise blob.error("has images with NaN or infinite values; remove them")
        if not ((images >= 0) & (images <= 1)).all():
            raise blob.error("has images outside of [0, 1]; scale them to it")
    elif images.dtype != np.uint8:
        raise blob.error(f"has images of {images.dtype}, not uint8 or float")
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return paired(blob, channels_first(blob, images), blob, flat, classes=classes)


def paired(
    source: Blob, images: Array, labelled: Blob, labels: Array, *, classes: int
) -> TensorSplit:
    """Join images and labels: the same number of each, every label below ``classes``."""
    checked = _labels(labelled, labels, classes)
    if len(images) != len(checked):
        raise source.error(
            f"has {len(images)} images but {labelled.name} has {len(checked)} labels"
        )
    return _tensors(images, checked)


def channels_first(blob: Blob, images: Array) -> Array:
    """Bring ``(n, H, W)``, ``(n, H, W, C)`` or ``(n, C, H, W)`` to ``(n, C, H, W)``.

    C is 1 or 3; where both could be C, it is the last. Vectors ``(n, features)`` stay.
    """
    if images.ndim == 2:
        return images
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in _COLOURS:
        return images.transpose(0, 3, 1, 2)
    if images.ndim == 4 and images.shape[1] in _COLOURS:
        return images
    raise blob.error(f"has images of shape {images.shape}, not (n, H, W[, 1 or 3])")


def _labels(blob: Blob, labels: Array, classes: int) -> Array:
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise blob.error(f"has labels of {labels.dtype}{labels.shape}, not n integers")
    outside = labels[(labels < 0) | (labels >= classes)]
    if len(outside):
        raise blob.error(f"has the label {outside[0]}, outside of 0 to {classes - 1}")
    return labels.astype(np.int64)


def _tensors(images: Array, labels: Array) -> TensorSplit:
    dtype = np.uint8 if images.dtype == np.uint8 else np.float32
    # A copy: frombuffer's memory is read-only.
    pixels: Tensor = torch.from_numpy(np.array(images, dtype=dtype, order="C"))
    return TensorSplit(pixels, torch.from_numpy(labels))


def _ungzip(blob: Blob) -> Blob:
    if blob.data[:2] != GZIP:
        return blob
    try:
        with gzip.open(io.BytesIO(blob.data)) as file:
            content = BoundedReader(file, expansion_limit(len(blob.data))).read()
    except RefusedError as error:
        raise blob.error(str(error)) from None
    except (EOFError, OSError, zlib.error) as error:
        raise blob.error(f"is cut short or damaged ({error})") from error
    return Blob(blob.name, content, blob.remedy)
