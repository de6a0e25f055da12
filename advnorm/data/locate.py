"""Where the files of a data set are: loose, or members of an archive, never unpacked."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from advnorm.data.archives import members
from advnorm.data.blob import Blob, read


def default_root() -> Path:
    """Return ``$ADVNORM_DATA``, else ``advnorm`` in the user's cache folder."""
    folder = os.environ.get("ADVNORM_DATA")
    return Path(folder) if folder else cache_folder()


def cache_folder() -> Path:
    """Return ``advnorm`` in the user's cache folder (``$XDG_CACHE_HOME``)."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "advnorm"


def download_command(root: Path, name: str) -> str:
    """Return the command that downloads a data set to where it is looked for.

    >>> download_command(Path("my data"), "mnist")
    "advnorm data get mnist --data 'my data'"
    """
    option = [] if root == default_root() else ["--data", str(root)]
    return shlex.join(["advnorm", "data", "get", name, *option])


def search_folders(root: Path, name: str, *folders: str) -> list[Path]:
    """Return the folders in which the files of ``name`` are searched, in order."""
    named = [root / name, root / name / "raw", *(root / folder for folder in folders)]
    return [*named, *(root / name / folder for folder in folders), root]


def missing_error(
    root: Path, name: str, files: Sequence[str], *, downloadable: bool = True
) -> FileNotFoundError:
    """Return the error for a data set that is not there: which files to put where."""
    command = f", or run: {download_command(root, name)}" if downloadable else ""
    return FileNotFoundError(
        f"no {name} under {root}: put {', '.join(files)} into {root / name}{command}"
    )


def find(
    root: Path,
    name: str,
    wanted: Sequence[str],
    *,
    archive: str | None = None,
    folders: Sequence[str] = (),
) -> list[Blob]:
    """Return the bytes of the files ``wanted``, in this order.

    A loose file, with or without ``.gz`` after its name, is preferred to an archive's
    member. A member matches by the end of its path: ``fog/test_images.npy`` is
    ``mnist_c/fog/test_images.npy``.
    """
    command = download_command(root, name)
    for folder in search_folders(root, name, *folders):
        paths = [_loose(folder / file) for file in wanted]
        if all(paths):
            return [read(path, f"remove it and run: {command}") for path in paths if path]
        packed = folder / archive if archive else None
        if packed and packed.is_file():
            return _from_archive(packed, wanted, f"remove {packed} and run: {command}")
    raise missing_error(root, name, [archive] if archive else list(wanted))


def _from_archive(path: Path, wanted: Sequence[str], remedy: str) -> list[Blob]:
    blobs = members(path, lambda name: _match(name, wanted) is not None, remedy=remedy)
    by_file = {_match(blob.name, wanted): blob for blob in blobs}
    for file in wanted:
        if file not in by_file:
            raise Blob(str(path), b"", remedy).error(f"has no member {file}")
    return [by_file[file] for file in wanted]


def _match(name: str, wanted: Sequence[str]) -> str | None:
    parts = PurePosixPath(name).parts
    for file in wanted:
        if parts[-len(PurePosixPath(file).parts) :] == PurePosixPath(file).parts:
            return file
    return None


def _loose(path: Path) -> Path | None:
    zipped = path.with_name(path.name + ".gz")
    return next((p for p in (path, zipped) if p.is_file()), None)
