"""Files that are whole or not there: atomic writes and digests."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds the old bytes or the new, never a part.

    Temporary file, fsync, rename, fsync of the folder. A full or read-only folder raises an
    ``OSError`` that names the path; what was there before stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"cannot write {path}: {error.strerror}; free room or choose another",
        ) from error
    sync_folder(path.parent)


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
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file for the time of a block; a second holder is refused, or waits.

    The lock belongs to the process and ends with it, however it ends. Systems without
    ``fcntl`` have no such locks, and go without; who would have to wait is told so.
    """
    try:
        import fcntl
    except ImportError:
        if wait:
            warnings.warn(
                f"this system has no file locks: let one process at a time work in "
                f"{path.parent}",
                stacklevel=3,
            )
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise ValueError(
                f"another process is at work in {path.parent}: wait until it has ended, or "
                "choose another folder"
            ) from None
        yield
