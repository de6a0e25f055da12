"""The data sets by name, and :func:`load`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from advnorm.data.blob import default_root, getting
from advnorm.data.splits import DataSet, Split, TensorSplit
from advnorm.data.subsets import Resample, checked_size, each, hold_out, resize
from advnorm.draws import permutation
from advnorm.registry import Registry

TEST_FRACTION = 0.2


@dataclass(frozen=True)
class DataRequest:
    """What :func:`load` was asked for."""

    kind: str
    argument: str
    root: Path
    size: int | None
    validation: float
    seed: int
    workers: int

    def plain(self) -> None:
        """Refuse an argument after the name."""
        if self.argument:
            raise ValueError(
                f"{self.kind} takes nothing after its name: ask for {self.kind!r}"
            )

    def again(self, path: Path) -> str:
        """Say how to replace a damaged file or folder."""
        return f"remove {path} and run: {getting(self.root, self.kind)}"

    def path(self) -> Path:
        """Return the argument as a path."""
        if not self.argument:
            raise ValueError(f"{self.kind} wants a path after its name: {self.kind}:PATH")
        return Path(self.argument).expanduser()


Reader = Callable[[DataRequest], DataSet]
DATA: Registry[Reader] = Registry("data set")


def load(
    name: str,
    *,
    root: Path | None = None,
    size: int | None = None,
    resample: Resample = "bilinear",
    validation: float = 0.1,
    seed: int = 0,
    workers: int = 2,
) -> DataSet:
    """Return a data set by its name, e.g. ``digits``, ``mnist``, ``folder:PATH``.

    Files are looked for under ``root``, else ``$ADVNORM_DATA``, else the user's cache
    folder. Images in memory are scaled to ``size`` (see :func:`advnorm.data.resize` for
    ``resample``), files are cropped to it. Where a set has no validation split of its own,
    ``validation`` of the training images are held out, drawn by ``seed``. A test split
    never depends on the seed, except that of the toy problems, which are drawn anew.
    ``workers`` processes decode files; with 0 that happens in this process. A split that
    comes class by class, as folders do, is shown in an order mixed once and for all, so
    that the first samples are of all classes.

    >>> data = load("digits")
    >>> data.shape, len(data.train), len(data.validation), len(data.test)
    ((1, 8, 8), 1293, 144, 360)
    """
    if not 0 <= validation < 1:
        raise ValueError(
            f"validation is a fraction from 0 to less than 1, not {validation}"
        )
    if size is not None:
        checked_size(size)
    kind, _, argument = name.partition(":")
    reader = DATA[kind]
    request = DataRequest(
        kind, argument, root or default_root(), size, validation, seed, max(workers, 0)
    )
    data = replace(each(reader(request), _mixed), name=name)
    if len(data.classes) < 2:
        raise ValueError(
            f"{name} has {len(data.classes)} class to tell apart: give at least 2 classes"
        )
    if data.test.streamed and resample != "bilinear":
        raise ValueError(
            f"{name} streams from files, which are scaled bilinearly: leave out "
            "data.resample"
        )
    if size is not None and not data.test.streamed:
        data = resize(data, size=size, resample=resample)
    if len(data.validation) or not len(data.train):
        return data
    train, held = hold_out(data.train, validation, seed=seed, purpose="validation")
    return replace(data, train=train, validation=held)


def _mixed(split: Split) -> Split:
    """Mix a split that comes class by class: whoever takes a few would see one class."""
    steps = split.labels.diff()
    if (steps < 0).any() or not (steps == 0).any():
        return split
    return split.take(permutation(len(split), 0, "mixed"))


def in_memory(classes: tuple[str, ...], train: TensorSplit, test: TensorSplit) -> DataSet:
    """Return a set of images in [0, 1] with no validation split yet."""
    shape = tuple(train.images.shape[1:])
    if shape != tuple(test.images.shape[1:]):
        raise ValueError(
            f"training images are {shape}, test images {tuple(test.images.shape[1:])}: "
            "both splits must have one shape"
        )
    return DataSet("", shape, classes, (0.0, 1.0), train, nothing(train), test)


def test_only(classes: tuple[str, ...], test: TensorSplit) -> DataSet:
    """Return a set with nothing to train on."""
    empty = test.take(torch.arange(0))
    return in_memory(classes, empty, test)


def nothing(split: Split) -> Split:
    """Return an empty split of the same kind."""
    return split.take(torch.arange(0))


def apart(split: Split) -> tuple[Split, Split]:
    """Return (training, test) of a source with one part: 20% for the test, for any seed."""
    if not round(TEST_FRACTION * len(split)):
        raise ValueError(
            f"{len(split)} images are too few to take {TEST_FRACTION:.0%} for the test: "
            "add images, or give the test images yourself"
        )
    return hold_out(split, TEST_FRACTION, seed=0, purpose="test")
