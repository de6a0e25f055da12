"""Safe reads, atomic writes and locks, for regular files only.

A file that is read may come from anybody: its name may be that of a pipe, of an endless
device, or of more bytes than fit in memory. A write never follows a link.
"""

import errno
import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Literal, cast

TEXT = 1 << 20
"""The largest size of a text file such as a recipe, in bytes."""

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would block
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def memory() -> int:
    """Return the memory of this machine in bytes; 16 GiB if it is unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 34


def check_regular(path: Path | str, mode: int) -> None:
    """Raise unless the ``mode`` of a ``stat`` is that of a regular file."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"is {kind}, not a regular file", str(path))


def open_regular(path: Path | str) -> BufferedReader:
    """Open a regular file for reading; anything else is refused at once.

    Raises:
        OSError: With the path, also for a pipe, a device or a folder.
    """
    return cast(BufferedReader, _open(path, "rb", _NO_WAIT))


def _open(path: Path | str, mode: Literal["rb", "ab"], flags: int) -> BinaryIO:
    """Open a regular file with additional flags of ``os.open``."""
    try:
        file = open(  # noqa: SIM115
            path, mode, opener=lambda name, default: os.open(name, default | flags, 0o666)
        )
    except OSError:
        with suppress(FileNotFoundError):  # name the file's kind instead
            status = os.lstat if flags & _NO_LINK else os.stat
            check_regular(path, status(path).st_mode)
        raise
    try:
        check_regular(path, os.fstat(file.fileno()).st_mode)
    except OSError:
        file.close()
        raise
    return file


def read_bytes(path: Path | str, limit: int | None = None) -> bytes:
    """Read a regular file of at most ``limit`` bytes, by default half of the memory.

    Raises:
        OSError: With the path, also if it is too large or not a regular file.
    """
    largest = memory() // 2 if limit is None else limit
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(largest + 1) if size <= largest else b""
    if size > largest or len(content) > largest:
        raise OSError(
            errno.EFBIG, f"has more than the {largest} bytes that are allowed", str(path)
        )
    return content


def read_text(path: Path | str, limit: int = TEXT) -> str:
    """Read a text of at most ``limit`` bytes of UTF-8 from a regular file."""
    return read_bytes(path, limit).decode()


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` atomically: ``path`` holds the old bytes or the new, never a part.

    Temporary file, fsync, rename, fsync of the folder. A full or read-only folder raises an
    ``OSError`` that names the path, and the old file is kept. The temporary file is locked
    while it is written, so that :func:`clear_leftovers` can tell it from one that a killed
    process has left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _new(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if not _fcntl():  # systems without fcntl cannot rename open files
                file.close()
            temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"cannot write {path}: {error.strerror}; free space or choose another folder",
        ) from error
    sync_folder(path.parent)


def _new(temporary: Path) -> BinaryIO:
    """Create and lock a temporary file; again if it is cleared in between."""
    while True:
        temporary.unlink(missing_ok=True)  # of an earlier process with our id, or a link
        file = temporary.open("xb")
        if fcntl := _fcntl():
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def clear_leftovers(folder: Path, names: str = ".+") -> None:
    """Remove temporary files that killed writers of :func:`write_atomically` have left.

    ``names`` is a regular expression of the files that were to be written. Files that a
    running process writes are locked, and kept; so are links and files with other names.
    """
    pattern = re.compile(rf"\.({names})\.\d+\.tmp")
    for path in folder.glob(".*.tmp") if folder.is_dir() else ():
        if pattern.fullmatch(path.name):
            with suppress(OSError):
                _clear(path)


def _clear(path: Path) -> None:
    """Remove a temporary file unless it is locked, or not a regular file."""
    check_regular(path, os.lstat(path).st_mode)
    fcntl = _fcntl()
    if not fcntl:  # systems without fcntl cannot remove open files
        path.unlink()
        return
    with _open(path, "rb", _NO_WAIT | _NO_LINK) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.lstat(path), os.fstat(file.fileno())):
            path.unlink()


def write_alone(path: Path, content: bytes) -> None:
    """Write a file like :func:`write_atomically`, after clearing its own leftovers.

    For files outside of run folders; those are cleared as a whole.
    """
    clear_leftovers(path.parent, re.escape(path.name))
    write_atomically(path, content)


def append(path: Path, content: bytes, *, sync: bool = True) -> int:
    """Append to a regular file, with fsync; return its new size. A link is refused."""
    with _open(path, "ab", _NO_WAIT | _NO_LINK) as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[BinaryIO]:
    """Hold a lock file during a block; a second process is refused, or waits.

    The lock ends with the process, however it ends. Systems without ``fcntl`` have no such
    locks; with ``wait`` there is a warning. Yields the open file, whose inode no other file
    has while it is open.
    """
    fcntl = _fcntl()
    if not fcntl and wait:
        warnings.warn(
            f"this system has no file locks: run only one process at a time in "
            f"{path.parent}",
            stacklevel=3,
        )
    with _open(path, "ab", _NO_WAIT | _NO_LINK) as file:
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise ValueError(
                f"another process is working in {path.parent}: wait until it has ended, or "
                "choose another folder"
            ) from None
        yield file


def _fcntl() -> ModuleType | None:
    """Return the module of file locks, if the system has it."""
    try:
        import fcntl
    except ImportError:
        return None
    return fcntl
