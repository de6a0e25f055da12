"""Finding the files of a data set: loose, or as members of an archive, never unpacked."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from advnorm.data.archives import members
from advnorm.data.blob import Blob, getting, missing, places, read


def find(
    root: Path,
    name: str,
    wanted: Sequence[str],
    *,
    archive: str | None = None,
    folders: Sequence[str] = (),
) -> list[Blob]:
    """Return the bytes of the files ``wanted``, in this order.

    A loose file, also with ``.gz`` after its name, goes before an archive's member. A
    member is wanted by the end of its path: ``fog/test_images.npy`` for
    ``mnist_c/fog/test_images.npy``.
    """
    command = getting(root, name)
    for folder in places(root, name, *folders):
        paths = [_loose(folder / file) for file in wanted]
        if all(paths):
            return [read(path, f"remove it and run: {command}") for path in paths if path]
        packed = folder / archive if archive else None
        if packed and packed.is_file():
            return _from_archive(packed, wanted, f"remove {packed} and run: {command}")
    raise missing(root, name, [archive] if archive else list(wanted))


def _from_archive(path: Path, wanted: Sequence[str], remedy: str) -> list[Blob]:
    found = members(path, lambda name: _ends(name, wanted) is not None, remedy=remedy)
    ends = {_ends(blob.name, wanted): blob for blob in found}
    for file in wanted:
        if file not in ends:
            raise Blob(str(path), b"", remedy).error(f"has no member {file}")
    return [ends[file] for file in wanted]


def _ends(name: str, wanted: Sequence[str]) -> str | None:
    parts = PurePosixPath(name).parts
    for file in wanted:
        if parts[-len(PurePosixPath(file).parts) :] == PurePosixPath(file).parts:
            return file
    return None


def _loose(path: Path) -> Path | None:
    zipped = path.with_name(path.name + ".gz")
    return next((p for p in (path, zipped) if p.is_file()), None)
