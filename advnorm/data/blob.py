"""The bytes of a data file, with its name and the advice for a damaged one."""

from dataclasses import dataclass
from pathlib import Path

from advnorm.files import read_bytes
from advnorm.text import cut

_HTML = (b"<!doctype", b"<html", b"<?xml")


@dataclass(frozen=True)
class Blob:
    """The bytes of a file or of an archive's member, and what to do if they are damaged."""

    name: str
    data: bytes
    remedy: str

    def error(self, why: str) -> ValueError:
        """Return the error that says why these bytes cannot be used."""
        return ValueError(f"{self.name} {cut(why, 400)}: {self.remedy}")


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
