"""The data sets by name: :func:`load`, and what it passes to the reader of a set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from advnorm.data.blob import Blob
from advnorm.data.locate import default_root, download_command, find
from advnorm.data.splits import DataSet, Split, TensorSplit
from advnorm.data.subsets import Resample, check_size, hold_out, map_splits, resize
from advnorm.draws import permutation
from advnorm.registry import Registry

TEST_FRACTION = 0.2


@dataclass(frozen=True)
class DataRequest:
    """The arguments of :func:`load`; a name is ``KIND`` or ``KIND:ARGUMENT``."""

    kind: str
    argument: str
    root: Path
    size: int | None
    validation: float
    seed: int
    workers: int

    def refuse_argument(self) -> None:
        """Refuse an argument after the name."""
        if self.argument:
            raise ValueError(
                f"{self.kind} takes nothing after its name: write {self.kind!r}"
            )

    def path(self) -> Path:
        """Return the argument as a path."""
        if not self.argument:
            raise ValueError(f"{self.kind} needs a path after its name: {self.kind}:PATH")
        return Path(self.argument).expanduser()

    def find(
        self, files: Sequence[str], *, archive: str = "", folder: str = ""
    ) -> list[Blob]:
        """Return the bytes of published files, see :func:`advnorm.data.locate.find`."""
        return find(
            self.root,
            self.kind,
            files,
            archive=archive or None,
            folders=(folder,) if folder else (),
        )

    def remedy(self, path: Path) -> str:
        """Say how to replace a damaged file or folder."""
        return f"remove {path} and run: {download_command(self.root, self.kind)}"


Reader = Callable[[DataRequest], DataSet]
DATA: Registry[Reader] = Registry("data set")
"""Each reads a data set as a :class:`DataRequest` asks."""


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

    Files are searched under ``root``, else ``$ADVNORM_DATA``, else the user's cache folder.
    Images in memory are scaled to ``size`` (see :func:`advnorm.data.resize` for
    ``resample``), image files are cropped to it. Where a set has no validation split of its
    own, a fraction ``validation`` of the training images is held out, drawn by ``seed``.
    The test split does not depend on the seed, except for the toy problems, which are drawn
    by it. ``workers`` processes decode image files; 0 decodes in this process. A split that
    is sorted by class, as folders are, is shuffled once, the same way for every seed, so
    that its first samples are of all classes.

    >>> data = load("digits")
    >>> data.shape, len(data.train), len(data.validation), len(data.test)
    ((1, 8, 8), 1293, 144, 360)
    """
    if not 0 <= validation < 1:
        raise ValueError(
            f"validation is a fraction from 0 to less than 1, not {validation}: set "
            "data.validation"
        )
    if size is not None:
        check_size(size)
    kind, _, argument = name.partition(":")
    reader = DATA[kind]
    request = DataRequest(
        kind, argument, root or default_root(), size, validation, seed, max(workers, 0)
    )
    data = replace(map_splits(reader(request), _shuffle_if_sorted), name=name)
    if len(data.classes) < 2:
        raise ValueError(f"{name} has {len(data.classes)} class: give at least 2 classes")
    if data.test.streamed and resample != "bilinear":
        raise ValueError(
            f"{name} is read from image files, which are scaled bilinearly: leave out "
            "data.resample"
        )
    if size is not None and not data.test.streamed:
        data = resize(data, size=size, resample=resample)
    if len(data.validation) or not len(data.train):
        return data
    train, held_out = hold_out(data.train, validation, seed=seed, purpose="validation")
    return replace(data, train=train, validation=held_out)


def _shuffle_if_sorted(split: Split) -> Split:
    """Shuffle a split that is sorted by class, whose first samples are all of one class."""
    steps = split.labels.diff()
    if (steps < 0).any() or not (steps == 0).any():
        return split
    return split.take(permutation(len(split), 0, "mixed"))


def image_set(classes: tuple[str, ...], train: TensorSplit, test: TensorSplit) -> DataSet:
    """Return a set of images in [0, 1], without a validation split."""
    shape = tuple(train.images.shape[1:])
    if shape != tuple(test.images.shape[1:]):
        raise ValueError(
            f"training images are {shape}, test images {tuple(test.images.shape[1:])}: "
            "both splits must have one shape"
        )
    return DataSet("", shape, classes, (0.0, 1.0), train, empty_like(train), test)


def image_test_set(classes: tuple[str, ...], test: TensorSplit) -> DataSet:
    """Return a set of test images alone."""
    return image_set(classes, test.take(torch.arange(0)), test)


def empty_like(split: Split) -> Split:
    """Return an empty split of the same kind."""
    return split.take(torch.arange(0))


def split_off_test(split: Split) -> tuple[Split, Split]:
    """Return (training, test) of a source with one split: 20% for the test, any seed."""
    if not round(TEST_FRACTION * len(split)):
        raise ValueError(
            f"{len(split)} images are too few to take {TEST_FRACTION:.0%} for the test: "
            "add images, or give the test images yourself"
        )
    return hold_out(split, TEST_FRACTION, seed=0, purpose="test")
