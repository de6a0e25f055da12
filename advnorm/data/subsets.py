"""Variants of a data set: some of its classes or samples, held-out parts, another size."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor, log10
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.data.splits import DataSet, Split, TensorSplit
from advnorm.draws import Draws, permutation
from advnorm.registry import unknown

_CHUNK = 1000
MAX_SIZE = 2048
"""The largest side of an image in pixels."""


def select(data: DataSet, *, classes: Sequence[int]) -> DataSet:
    """Keep these classes, numbered 0 to k - 1 in this order.

    MNIST 3 against 7 (galloway2019, Table 1) is ``select(mnist, classes=(3, 7))``.
    """
    labels = range(len(data.classes))
    if (
        len(classes) < 2
        or len(set(classes)) < len(classes)
        or not set(classes) <= set(labels)
    ):
        raise ValueError(
            f"cannot select the classes {list(classes)} of {data.name}: "
            f"give two or more different ones from 0 to {len(labels) - 1}"
        )
    table = torch.full((len(labels),), -1)
    table[list(classes)] = torch.arange(len(classes))

    def keep(split: Split) -> Split:
        positions = (table[split.labels] >= 0).nonzero().flatten()
        return split.take(positions).relabel(table)

    return replace(
        map_splits(data, keep),
        name=f"{data.name}[{','.join(map(str, classes))}]",
        classes=tuple(data.classes[c] for c in classes),
    )


def subset(
    data: DataSet, *, train: int | None = None, test: int | None = None, seed: int
) -> DataSet:
    """Draw ``train`` and ``test`` samples, the same number of each class up to rounding.

    ``None`` keeps a whole split; the validation split is kept. The draw depends on (seed,
    sample), and a smaller subset is part of a larger one. Of a class with too few samples
    all are taken, and more of the others.
    """

    def draw(split: Split, count: int | None, which: str) -> Split:
        if count is None:
            return split
        if not 0 <= count <= len(split):
            raise ValueError(
                f"{data.name} has {len(split)} {which} samples: "
                f"draw 0 to {len(split)} of them, not {count}"
            )
        return split.take(
            balanced_positions(split, count, classes=len(data.classes), seed=seed)
        )

    counts = ",".join(
        f"{k}={v}" for k, v in (("train", train), ("test", test)) if v is not None
    )
    return replace(
        data,
        name=f"{data.name}[{counts},seed={seed}]" if counts else data.name,
        train=draw(data.train, train, "training"),
        test=draw(data.test, test, "test"),
    )


def balanced_positions(split: Split, count: int, *, classes: int, seed: int) -> Tensor:
    """Return ``count`` positions, ascending, as evenly over the classes as possible.

    Each class is shuffled; then one sample of each class is taken in turn, in an order of
    the classes that the seed decides.
    """
    keys = Draws.of(seed, split.samples).stream("subset").keys
    turn = permutation(classes, seed, "classes").argsort()[split.labels]
    rank = torch.empty(len(split), dtype=torch.int64)
    for label in range(classes):
        members = (split.labels == label).nonzero().flatten()
        rank[members[keys[members].argsort()]] = torch.arange(len(members))
    return (rank * classes + turn).argsort()[:count].sort().values


def hold_out(
    split: Split, fraction: float, *, seed: int, purpose: str
) -> tuple[Split, Split]:
    """Return (remaining, held-out) samples, each in the order of the source.

    A fraction above 0 must leave at least one sample on each side.
    """
    order = permutation(len(split), seed, purpose)
    count = round(fraction * len(split))
    if fraction and not 0 < count < len(split):
        raise ValueError(
            f"a {purpose} fraction of {fraction:g} is {count} of {len(split)} samples: "
            f"give {_valid_fractions(len(split))}"
        )
    return split.take(order[count:].sort().values), split.take(order[:count].sort().values)


def _valid_fractions(count: int) -> str:
    """Name the smallest and the largest fraction that holds out some samples, but not all.

    >>> _valid_fractions(100), _valid_fractions(2)
    ('0.0051 to 0.99', '0.26 to 0.5')
    """
    if count < 2:
        return "more samples"
    digits = 1 - floor(log10(0.5 / count))
    unit = 10.0**-digits
    smallest = (floor(0.5 / count / unit) + 1) * unit  # round(0.5) is 0: half is too few
    return f"{smallest:.{digits}f} to {round((count - 1) / count, digits):g}"


def check_size(size: int) -> int:
    """Return the side of an image in pixels; refuse what is out of range."""
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(
            f"size is a number of pixels from 1 to {MAX_SIZE}, not {size}: set data.size"
        )
    return size


Resample = Literal["bilinear", "nearest"]


def resize(data: DataSet, *, size: int, resample: Resample = "bilinear") -> DataSet:
    """Scale the images of a set in memory to ``size x size``.

    ``bilinear`` rounds uint8 images to uint8, and antialiases when it shrinks. ``nearest``
    takes the pixel that contains the new pixel's centre: galloway2019 scales MNIST to 56,
    84 and 112 that way (appendix F), into tiles of equal pixels.
    """
    if resample not in get_args(Resample):
        raise unknown("resampling", resample, list(get_args(Resample)))
    if len(data.shape) != 3:
        raise ValueError(
            f"cannot resize {data.name} of shape {data.shape}: leave out data.size"
        )
    if data.shape[1:] == (check_size(size), size):
        return data

    def scale(split: Split) -> Split:
        if not isinstance(split, TensorSplit):
            raise ValueError(
                f"{data.name} is read from image files: pass size to load instead"
            )
        scaled = _scale(split.images, size, resample, data.bounds)
        return TensorSplit(scaled, split.labels, split.samples)

    return replace(map_splits(data, scale), shape=(data.shape[0], size, size))


def _scale(
    images: Tensor, size: int, resample: Resample, bounds: tuple[float, float]
) -> Tensor:
    scaled = images.new_empty((len(images), images.shape[1], size, size))
    shrink = size < max(images.shape[2:])
    for start in range(0, len(images), _CHUNK):
        part = images[start : start + _CHUNK].float()
        if resample == "nearest":
            part = F.interpolate(part, (size, size), mode="nearest-exact")
        else:
            part = F.interpolate(part, (size, size), mode="bilinear", antialias=shrink)
        if images.dtype == torch.uint8:
            part = part.round().clamp(0, 255)
        else:
            part = part.clamp(*bounds)  # a mean of ones may round to more than one
        scaled[start : start + _CHUNK] = part.to(images.dtype)
    return scaled


def map_splits(data: DataSet, change: Callable[[Split], Split]) -> DataSet:
    """Return the set with ``change`` applied to its three splits."""
    return replace(
        data,
        train=change(data.train),
        validation=change(data.validation),
        test=change(data.test),
    )
