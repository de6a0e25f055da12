"""Data sets of image files: Tiny ImageNet, Imagenette, ImageNet and your own folders.

A split is a folder of class folders of JPEG or PNG files. Classes are numbered in
the order of their folders' names, images in the order of their paths.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import torch

from advnorm.data.archives import members
from advnorm.data.blob import Blob, read
from advnorm.data.decode import probe
from advnorm.data.locate import missing_error, search_folders
from advnorm.data.registry import DATA, DataRequest, empty_like, split_off_test
from advnorm.data.splits import DataSet, Split
from advnorm.data.streaming import ArchiveStore, FileStore, ImageStore, StreamedSplit
from advnorm.data.subsets import check_size

_SUFFIXES = (".jpg", ".jpeg", ".png")
_IMAGENETTE = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}
_IMAGENETTE_NAMES = ("imagenette2-160", "imagenette2-320", "imagenette2")


class ImageListing(NamedTuple):
    """Encoded images and the class name of each."""

    store: ImageStore
    classes: list[str]


@DATA.register("folder")
def folder(request: DataRequest) -> DataSet:
    """Your own images: ``folder:PATH`` with PATH/train/CLASS/* and PATH/test/CLASS/*.

    PATH/val is the validation split, or the test split where there is no PATH/test. With
    PATH/CLASS/* alone, 20% of the images become the test split. Without a size, the shorter
    side of the first image is the size; its mode decides between grey and colour.
    """
    path = request.path()
    if not path.is_dir():
        raise FileNotFoundError(
            f"no folder {path}: give one with train/CLASS/* and test/CLASS/* images"
        )
    return _from_folder(request, path, default=None)


@DATA.register("imagenet")
def imagenet(request: DataRequest) -> DataSet:
    """ImageNet (ILSVRC 2012), 224x224: ``train/CLASS/*`` and ``val/CLASS/*``.

    Its own ``test`` folder has no labels and is not read.
    """
    request.refuse_argument()
    path = request.root / request.kind
    if _has_splits(path):
        return _from_folder(request, path, ("val",), default=224)
    files = ["the class folders train/* and val/* (on request from image-net.org)"]
    raise missing_error(request.root, request.kind, files, downloadable=False)


@DATA.register("imagenette")
def imagenette(request: DataRequest) -> DataSet:
    """Imagenette, 160x160: ``imagenette2-160.tgz`` (or -320, or full), or unpacked."""
    request.refuse_argument()
    for path in search_folders(request.root, request.kind, *_IMAGENETTE_NAMES):
        if _has_splits(path) and path != request.root:
            return _with_class_names(_from_folder(request, path, ("val",), default=160))
        for archive in (path / f"{name}.tgz" for name in _IMAGENETTE_NAMES):
            if archive.is_file():
                remedy = request.remedy(archive)
                train, test = (_list_archive(archive, p, remedy) for p in ("train", "val"))
                return _with_class_names(_build(request, archive, train, test, default=160))
    raise missing_error(request.root, request.kind, ["imagenette2-160.tgz"])


@DATA.register("tiny-imagenet")
def tiny_imagenet(request: DataRequest) -> DataSet:
    """Tiny ImageNet, 64x64: ``tiny-imagenet-200.zip``, or unpacked.

    ``train/CLASS/images/*.JPEG``, and the test split ``val/images/*.JPEG`` with its classes
    in ``val/val_annotations.txt`` (file name, class and box, with tabs between).
    """
    request.refuse_argument()
    for path in search_folders(request.root, request.kind, "tiny-imagenet-200"):
        annotations = path / "val" / "val_annotations.txt"
        if annotations.is_file():
            classes = _annotations(read(annotations, request.remedy(path)))
            train = _list_folder(path / "train")
            return _build(request, path, train, _list_val_folder(path, classes))
        archive = path / "tiny-imagenet-200.zip"
        if archive.is_file():
            remedy = request.remedy(archive)
            train = _list_archive(archive, "train", remedy)
            return _build(request, archive, train, _list_val_archive(archive, remedy))
    raise missing_error(request.root, request.kind, ["tiny-imagenet-200.zip"])


def _has_splits(path: Path) -> bool:
    return (path / "train").is_dir() and (path / "val").is_dir()


def _from_folder(
    request: DataRequest,
    path: Path,
    held_out: Sequence[str] = ("test", "val"),
    *,
    default: int | None,
) -> DataSet:
    """Read ``train`` and the test split beside it; a second one is for validation."""
    if not (path / "train").is_dir():
        data = _build(request, path, _list_folder(path), None, default=default)
        train, test = split_off_test(data.train)
        return replace(data, train=train, validation=empty_like(train), test=test)
    folders = [path / part for part in held_out if (path / part).is_dir()]
    if not folders:
        raise ValueError(f"{path} has a train folder but no test or val: add one of them")
    listings = [_list_folder(folder) for folder in folders]
    validation = listings[1] if len(listings) > 1 else None
    train_listing = _list_folder(path / "train")
    return _build(request, path, train_listing, listings[0], validation, default=default)


def _build(
    request: DataRequest,
    path: Path,
    train: ImageListing,
    test: ImageListing | None,
    validation: ImageListing | None = None,
    *,
    default: int | None = 64,
) -> DataSet:
    names = sorted(set(train.classes))
    numbers = {name: number for number, name in enumerate(names)}
    channels, side = probe(train.store.blob(0))
    size = check_size(request.size or default or side)

    def split(listing: ImageListing) -> Split:
        if unknown := set(listing.classes) - set(names):
            raise ValueError(
                f"{path} has the class {min(unknown)!r} outside of its training images: "
                "give every class a training folder"
            )
        labels = torch.tensor([numbers[name] for name in listing.classes])
        samples = torch.arange(len(labels))
        return StreamedSplit(
            listing.store, labels, samples, channels, size, request.seed, request.workers
        )

    train_split = split(train)
    return DataSet(
        name="",
        shape=(channels, size, size),
        classes=tuple(names),
        bounds=(0.0, 1.0),
        train=train_split,
        test=empty_like(train_split) if test is None else split(test),
        validation=empty_like(train_split) if validation is None else split(validation),
    )


def _list_folder(path: Path) -> ImageListing:
    """List ``path/CLASS/**`` images; an empty class folder is refused."""
    files: list[str] = []
    classes: list[str] = []
    for label in sorted(_class_folders(path)):
        images = sorted(_list_images(path / label))
        if not images:
            raise ValueError(
                f"{path / label} has no JPEG or PNG image: fill the folder or remove it"
            )
        files.extend(os.path.join(label, file) for file in images)
        classes.extend([label] * len(images))
    if not files:
        raise ValueError(f"{path} has no class folders: put images into {path}/CLASS/")
    return ImageListing(FileStore(path, files), classes)


def _class_folders(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]


def _list_images(path: Path) -> list[str]:
    """Return the images under ``path``, relative to it."""
    images = []
    for folder, _, files in os.walk(path):
        inner = os.path.relpath(folder, path)
        for file in files:
            if file.lower().endswith(_SUFFIXES) and not file.startswith("."):
                images.append(os.path.normpath(os.path.join(inner, file)))
    return images


def _list_val_folder(path: Path, classes: dict[str, str]) -> ImageListing:
    folder = path / "val" / "images"
    files = sorted(classes)
    return ImageListing(FileStore(folder, files), [classes[file] for file in files])


def _annotations(blob: Blob) -> dict[str, str]:
    rows = [line.split("\t") for line in blob.data.decode("utf-8", "replace").splitlines()]
    if not rows or any(len(row) < 2 for row in rows):
        raise blob.error("has a line without a file name and a class")
    names = {row[0] for row in rows}
    if outside := [n for n in names if n in ("", "..") or n != PurePosixPath(n).name]:
        raise blob.error(f"names a file that is not in its folder ({min(outside)})")
    return {row[0]: row[1] for row in rows}


def _list_archive(archive: Path, part: str, remedy: str) -> ImageListing:
    """List the images ``*/part/CLASS/...`` of an archive."""

    def wanted(name: str) -> bool:
        parts = PurePosixPath(name).parts
        return part in parts[:-2] and name.lower().endswith(_SUFFIXES)

    blobs = _sorted_members(archive, wanted, remedy)
    inside = [_inner(archive, blob) for blob in blobs]
    return ImageListing(
        ArchiveStore(blobs), [parts[parts.index(part) + 1] for parts in inside]
    )


def _list_val_archive(archive: Path, remedy: str) -> ImageListing:
    """List the test images of Tiny ImageNet's archive."""

    def wanted(name: str) -> bool:
        return "val" in PurePosixPath(name).parts[:-1]

    blobs = _sorted_members(archive, wanted, remedy)
    text = [blob for blob in blobs if blob.name.endswith("val_annotations.txt")]
    images = [blob for blob in blobs if blob.name.lower().endswith(_SUFFIXES)]
    classes = _annotations(text[0]) if text else {}
    names = [PurePosixPath(blob.name).name for blob in images]
    for name in names:
        if name not in classes:
            raise ValueError(f"{archive} has no class for {name}: {remedy}")
    return ImageListing(ArchiveStore(images), [classes[name] for name in names])


def _sorted_members(
    archive: Path, wanted: Callable[[str], bool], remedy: str
) -> Sequence[Blob]:
    blobs = sorted(members(archive, wanted, remedy=remedy), key=lambda blob: blob.name)
    if not blobs:
        raise ValueError(f"{archive} has no images in the expected folders: {remedy}")
    return blobs


def _inner(archive: Path, blob: Blob) -> tuple[str, ...]:
    return PurePosixPath(blob.name[len(str(archive)) + 1 :]).parts


def _with_class_names(data: DataSet) -> DataSet:
    names = tuple(_IMAGENETTE.get(label, label) for label in data.classes)
    return replace(data, classes=names)
