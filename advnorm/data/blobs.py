"""Finding the bytes of a data set: loose files or members of an archive, never unpacked."""

import gzip
import lzma
import os
import shlex
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

_HTML = (b"<!doctype", b"<html", b"<?xml")
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    EOFError,
    zlib.error,
    NotImplementedError,
)
_CHUNK = 2**20


@dataclass(frozen=True)
class Blob:
    """The bytes of a file or of an archive's member, and what to do if they are bad."""

    name: str
    data: bytes
    remedy: str

    def bad(self, why: str) -> ValueError:
        """Return the error that says why these bytes cannot be used."""
        return ValueError(f"{self.name} {why}: {self.remedy}")


def default_root() -> Path:
    """Return ``$ADVNORM_DATA``, else ``advnorm`` in the user's cache folder."""
    if folder := os.environ.get("ADVNORM_DATA"):
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "advnorm"


def getting(root: Path, name: str) -> str:
    """Return the command that brings a data set to where it is looked for.

    >>> getting(Path("my data"), "mnist")
    "advnorm data get mnist --data 'my data'"
    """
    elsewhere = [] if root == default_root() else ["--data", str(root)]
    return shlex.join(["advnorm", "data", "get", name, *elsewhere])


def places(root: Path, name: str, *folders: str) -> list[Path]:
    """Return where the files of ``name`` may lie, in the order they are looked for."""
    here = [root / name, root / name / "raw", *(root / folder for folder in folders)]
    return [*here, *(root / name / folder for folder in folders), root]


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


def missing(root: Path, name: str, files: Sequence[str], *, get: bool = True) -> Exception:
    """Return the error for a data set that is not there: what to put where."""
    command = f", or run: {getting(root, name)}" if get else ""
    return FileNotFoundError(
        f"no {name} under {root}: put {', '.join(files)} into {root / name}{command}"
    )


def read(path: Path, remedy: str) -> Blob:
    """Read a file; a web page in its place is refused."""
    return _not_html(Blob(str(path), path.read_bytes(), remedy))


def is_html(data: bytes) -> bool:
    """Whether these are the first bytes of a web page."""
    return data[:64].lstrip().lower().startswith(_HTML)


def members(path: Path, wanted: Callable[[str], bool], *, remedy: str) -> Iterator[Blob]:
    """Yield the wanted files of a tar or zip archive, in memory.

    An archive with a path that would leave its folder is refused as a whole, by the name of
    that member; links are never followed.
    """
    with path.open("rb") as file:
        head = Blob(str(path), file.read(512), remedy)
    _not_html(head)
    reader = _zip_members if head.data.startswith(b"PK") else _tar_members
    try:
        yield from reader(path, wanted, remedy)
    except _BROKEN as error:
        raise head.bad(f"is cut short or no archive ({error})") from error


def _tar_members(path: Path, wanted: Callable[[str], bool], remedy: str) -> Iterator[Blob]:
    with tarfile.open(path) as archive:
        for member in archive:
            _inside(path, member.name, remedy)
            if member.isreg() and wanted(member.name):
                file = archive.extractfile(member)
                assert file is not None
                yield Blob(f"{path}/{member.name}", file.read(), remedy)
        assert archive.fileobj is not None
        while archive.fileobj.read(_CHUNK):  # gzip's checksum stands at the very end
            pass


def _zip_members(path: Path, wanted: Callable[[str], bool], remedy: str) -> Iterator[Blob]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            _inside(path, name, remedy)
        for name in archive.namelist():
            if not name.endswith("/") and wanted(name):
                yield Blob(f"{path}/{name}", archive.read(name), remedy)


def _from_archive(path: Path, wanted: Sequence[str], remedy: str) -> list[Blob]:
    found = members(path, lambda name: _ends(name, wanted) is not None, remedy=remedy)
    ends = {_ends(blob.name, wanted): blob for blob in found}
    for file in wanted:
        if file not in ends:
            raise Blob(str(path), b"", remedy).bad(f"has no member {file}")
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


def _inside(path: Path, name: str, remedy: str) -> None:
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    if ".." in parts or name.startswith(("/", "\\")) or PureWindowsPath(name).drive:
        raise Blob(str(path), b"", remedy).bad(
            f"has a member outside of its folder ({name})"
        )


def _not_html(blob: Blob) -> Blob:
    if is_html(blob.data):
        raise blob.bad("is a web page, not data")
    return blob
