"""Members of tar and zip archives, read in memory, with limits on their expanded size.

A compressed file of a megabyte may hold a terabyte of zeros. Published images and arrays
compress by a factor of 2 to 10. So a file may expand to at most 100 times its size, or to
64 MiB if that is more, and never to more than half of the memory.
"""

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO, cast

from advnorm.data.blob import Blob, not_html
from advnorm.files import memory, open_regular

MIN_LIMIT = 1 << 26
"""Bytes that any file may expand to."""
MAX_RATIO = 100
GZIP = b"\x1f\x8b"

_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    EOFError,
    OSError,
    ValueError,
    zlib.error,
    NotImplementedError,
    RuntimeError,  # an encrypted member
    struct.error,
    UnicodeError,
    OverflowError,
    IndexError,
)
_CHUNK = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def expansion_limit(packed: int) -> int:
    """Return how many bytes a compressed file of ``packed`` bytes may expand to."""
    return min(max(MIN_LIMIT, MAX_RATIO * packed), memory() // 2)


class RefusedError(ValueError):
    """An archive that is refused, though it may be valid."""


class BoundedReader:
    """A stream to read or seek forward in, up to ``limit`` bytes."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, limit: int) -> None:
        self._file, self._limit = file, limit

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes, or all."""
        room = self._limit - self._file.tell()
        wanted = room + 1 if size < 0 else min(size, room + 1)
        parts = []
        while wanted > 0 and (part := self._file.read(min(wanted, _CHUNK))):
            parts.append(part)
            wanted -= len(part)
        self._check(self._file.tell())
        return b"".join(parts)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position from the start."""
        assert whence == io.SEEK_SET
        self._check(position)
        return self._file.seek(position)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise RefusedError("expands to far more than its size")


def members(
    source: Path | Blob, wanted: Callable[[str], bool], *, remedy: str
) -> Iterator[Blob]:
    """Yield the wanted files of a tar or zip archive, in memory.

    An archive with a member outside of its folder is refused as a whole, by the name of
    that member; links are never followed.
    """
    name = source.name if isinstance(source, Blob) else str(source)
    with _open(source, remedy) as file:
        head = not_html(Blob(name, file.read(512), remedy))
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        reader = _zip_members if head.data.startswith(b"PK") else _tar_members
        try:
            for member, content in reader(file, size, wanted):
                yield Blob(f"{name}/{member}", content, remedy)
        except RefusedError as error:
            raise head.error(str(error)) from None
        except _BROKEN as error:
            raise head.error(f"is cut short or no archive ({error})") from error


def _open(source: Path | Blob, remedy: str) -> BinaryIO:
    if isinstance(source, Blob):
        return io.BytesIO(source.data)
    try:
        return open_regular(source)
    except OSError as error:
        raise Blob(str(source), b"", remedy).error(
            f"cannot be read ({error.strerror})"
        ) from error


def _tar_members(
    file: BinaryIO, size: int, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    packed = file.read(2) == GZIP
    file.seek(0)
    limit = max(MIN_LIMIT, MAX_RATIO * size) if packed else size
    stream = BoundedReader(gzip.GzipFile(fileobj=file) if packed else file, limit)
    room = memory() // 2
    with tarfile.open(fileobj=cast(Any, stream), mode="r:") as archive:
        for member in archive:
            _check_path(member.name)
            if not member.isreg() or not wanted(member.name):
                continue
            room -= member.size
            if room < 0 or member.issparse():
                raise RefusedError("has members that need more than half of the memory")
            content = archive.extractfile(member)
            assert content is not None
            yield member.name, content.read()
        while stream.read(_CHUNK):  # the checksum of gzip is at the very end
            pass


def _zip_members(
    file: BinaryIO, size: int, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    room = expansion_limit(size)
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            _check_path(name)
        for member in archive.infolist():
            if member.is_dir() or not wanted(member.filename):
                continue
            if member.compress_type not in _METHODS:
                raise RefusedError(f"has {member.filename} compressed, but not by deflate")
            room -= member.file_size
            if room < 0:
                raise RefusedError("expands to far more than its size")
            yield member.filename, _inflate(archive, member)


def _inflate(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member by chunks: its header may give a wrong size."""
    with archive.open(member) as content:
        return b"".join(iter(lambda: content.read(_CHUNK), b""))


def _check_path(name: str) -> None:
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    if ".." in parts or name.startswith(("/", "\\")) or PureWindowsPath(name).drive:
        raise RefusedError(f"has a member outside of its folder ({name})")
