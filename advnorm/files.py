"""Files that are whole or not there: atomic writes and digests."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from types import ModuleType
from typing import IO


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


def _new(temporary: Path) -> IO[bytes]:
    """Open and lock a temporary file; who clears leftovers may come in between."""
    while True:
        file = temporary.open("wb")
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
        if pattern.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            with suppress(OSError):
                _clear(path)


def write_alone(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_atomically`, and clear what killed writers of it left.

    For files outside of run folders, which are cleared as a whole.
    """
    clear_leftovers(path.parent, re.escape(path.name))
    write_atomically(path, content)


def _clear(path: Path) -> None:
    """Remove a temporary file unless it is locked."""
    fcntl = _fcntl()
    if not fcntl:  # such a system removes no open file
        path.unlink()
        return
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[IO[str]]:
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
    with path.open("w") as file:
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
