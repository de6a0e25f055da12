"""The bytes of a data set and where they are looked for."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advnorm.files import read_bytes
from advnorm.text import cut

_HTML = (b"<!doctype", b"<html", b"<?xml")


@dataclass(frozen=True)
class Blob:
    """The bytes of a file or of an archive's member, and what to do if they are bad."""

    name: str
    data: bytes
    remedy: str

    def error(self, why: str) -> ValueError:
        """Return the error that says why these bytes cannot be used."""
        return ValueError(f"{self.name} {cut(why, 400)}: {self.remedy}")


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


def missing(root: Path, name: str, files: Sequence[str], *, get: bool = True) -> Exception:
    """Return the error for a data set that is not there: what to put where."""
    command = f", or run: {getting(root, name)}" if get else ""
    return FileNotFoundError(
        f"no {name} under {root}: put {', '.join(files)} into {root / name}{command}"
    )


def read(path: Path, remedy: str) -> Blob:
    """Read a regular file; a web page in its place is refused."""
    try:
        blob = Blob(str(path), read_bytes(path), remedy)
    except OSError as error:
        raise Blob(str(path), b"", remedy).error(
            f"cannot be read ({error.strerror})"
        ) from error
    return not_html(blob)


def is_html(data: bytes) -> bool:
    """Whether these are the first bytes of a web page."""
    return data[:64].lstrip().lower().startswith(_HTML)


def not_html(blob: Blob) -> Blob:
    """Refuse a web page."""
    if is_html(blob.data):
        raise blob.error("is a web page, not data")
    return blob
