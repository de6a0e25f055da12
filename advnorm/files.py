"""Files that are whole or not there, and nothing but files: reads, writes, locks.

What is read may have been written by anybody: a name may lead to a pipe, to a device that
never ends, or to more than fits in memory. What is written goes where its name says, never
through a link that somebody left there.
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
"""Bytes of a text that a person may read, such as a recipe."""

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe would keep us until its other end opens
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def memory() -> int:
    """Return the bytes of this machine's memory; where that is unknown, 16 GiB."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 34


def check_regular(path: Path | str, mode: int) -> None:
    """Refuse what is no regular file, by the mode of its ``stat``."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"is {kind}, not a regular file", str(path))


def open_regular(path: Path | str) -> BufferedReader:
    """Open a regular file to read it; anything else is refused at once.

    Raises:
        OSError: With the path, also for a pipe, a device or a folder.
    """
    return cast(BufferedReader, _open(path, "rb", _NO_WAIT))


def _open(path: Path | str, mode: Literal["rb", "ab"], more: int) -> BinaryIO:
    """Open a regular file with more flags than ``open`` has."""
    try:
        file = open(  # noqa: SIM115
            path, mode, opener=lambda name, flags: os.open(name, flags | more, 0o666)
        )
    except OSError:
        with suppress(FileNotFoundError):  # say what it is, rather than what went wrong
            look = os.lstat if more & _NO_LINK else os.stat
            check_regular(path, look(path).st_mode)
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
        OSError: With the path, also where it is too large or no regular file.
    """
    most = memory() // 2 if limit is None else limit
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise OSError(
            errno.EFBIG, f"has more than the {most} bytes that are allowed", str(path)
        )
    return content


def read_text(path: Path | str, limit: int = TEXT) -> str:
    """Read a text of at most ``limit`` bytes of UTF-8 from a regular file."""
    return read_bytes(path, limit).decode()


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds the old bytes or the new, never a part.

    Temporary file, fsync, rename, fsync of the folder. A full or read-only folder raises an
    ``OSError`` that names the path; what was there before stays. The temporary file is
    locked while it is written, so that :func:`clear_leftovers` can tell it from one that a
    killed process has left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _new(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if not _fcntl():  # such a system renames no open file
                file.close()
            temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"cannot write {path}: {error.strerror}; free room or choose another",
        ) from error
    sync_folder(path.parent)


def _new(temporary: Path) -> BinaryIO:
    """Make and lock a temporary file; who clears leftovers may come in between."""
    while True:
        temporary.unlink(missing_ok=True)  # of a process that had our number, or a link
        file = temporary.open("xb")
        if fcntl := _fcntl():
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def clear_leftovers(folder: Path, names: str = ".+") -> None:
    """Remove temporary files that killed writers of :func:`write_atomically` have left.

    ``names`` is a regular expression of the files that were to be written. A file that a
    living process writes is locked, and stays; so do links and whatever has another name.
    """
    pattern = re.compile(rf"\.({names})\.\d+\.tmp")
    for path in folder.glob(".*.tmp") if folder.is_dir() else ():
        if pattern.fullmatch(path.name):
            with suppress(OSError):
                _clear(path)


def _clear(path: Path) -> None:
    """Remove a temporary file unless it is locked, or no regular file."""
    check_regular(path, os.lstat(path).st_mode)
    fcntl = _fcntl()
    if not fcntl:  # such a system removes no open file
        path.unlink()
        return
    with _open(path, "rb", _NO_WAIT | _NO_LINK) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.lstat(path), os.fstat(file.fileno())):
            path.unlink()


def write_alone(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_atomically`, and clear what killed writers of it left.

    For files outside of run folders, which are cleared as a whole.
    """
    clear_leftovers(path.parent, re.escape(path.name))
    write_atomically(path, content)


def append(path: Path, content: bytes, *, sync: bool = True) -> int:
    """Add to the end of a regular file, through to the disk; return its size then.

    A link is refused.
    """
    with _open(path, "ab", _NO_WAIT | _NO_LINK) as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[BinaryIO]:
    """Hold a lock file for the time of a block; a second holder is refused, or waits.

    The lock belongs to the process and ends with it, however it ends. Systems without
    ``fcntl`` have no such locks, and go without; who would have to wait is told so. The
    block is given the open file, whose inode no other file has while it is open.
    """
    fcntl = _fcntl()
    if not fcntl and wait:
        warnings.warn(
            f"this system has no file locks: let one process at a time work in "
            f"{path.parent}",
            stacklevel=3,
        )
    with _open(path, "ab", _NO_WAIT | _NO_LINK) as file:
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise ValueError(
                f"another process is at work in {path.parent}: wait until it has ended, or "
                "choose another folder"
            ) from None
        yield file


def _fcntl() -> ModuleType | None:
    """Return the module of file locks, where the system has it."""
    try:
        import fcntl
    except ImportError:
        return None
    return fcntl
