"""Read records from files that may be damaged or malicious.

JSON is parsed and checked in one step by pydantic, which refuses deep nesting and numbers
of thousands of digits, where :mod:`json` runs out of stack or time.
"""

from pathlib import Path

from pydantic import ValidationError

from advnorm.files import read_bytes
from advnorm.records.base import R, Record
from advnorm.text import cut

LINES = 1 << 28
"""Bytes of a file with a record a line."""
EARLIER_VERSION = (
    "was made by an earlier version of advnorm: make it again in a new folder, or use that "
    "version"
)


def read_record(path: Path, kind: type[R]) -> R:
    """Read a record; a damaged file is named."""
    advice = "remove it and run again"
    return _parse(path, _read(path, kind.LIMIT, advice), kind, advice)


def read_lines(path: Path, kind: type[R]) -> list[R]:
    """Read one record a line; an incomplete last line is left out."""
    if not path.exists():
        return []
    advice = "remove the whole folder and run again"
    *complete, last = _read(path, LINES, advice).split(b"\n")
    if last and not last.startswith(b"{"):
        raise ValueError(f"{path} is damaged (its last line is not a record): {advice}")
    return [_parse(path, line, kind, advice) for line in complete]


def first_mistake(error: ValidationError) -> str:
    """Say where the first mistake is, and what it is, in a few words."""
    details = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in details["loc"])
    return f"{cut(where)}: {cut(details['msg'])}" if where else cut(details["msg"])


def is_of_earlier_version(error: ValidationError, kind: type[Record]) -> bool:
    """Return whether a record has an old name of a field in place of today's."""
    for details in error.errors(include_url=False):
        field, *inner = details["loc"] or ("",)
        if details["type"] == "extra_forbidden" and not inner and field in kind.RENAMED:
            return True
        if details["type"] == "missing" and not inner:
            old = [name for name, new in kind.RENAMED.items() if new == field]
            if any(name in details["input"] for name in old):
                return True
    return False


def _read(path: Path, limit: int, advice: str) -> bytes:
    try:
        return read_bytes(path, limit)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {advice}") from error


def _parse(path: Path, content: bytes, kind: type[R], advice: str) -> R:
    try:
        if len(content) > kind.LIMIT:
            raise ValueError(f"a line has more than {kind.LIMIT} bytes")
        return kind.model_validate_json(content)
    except ValidationError as error:
        if is_of_earlier_version(error, kind):
            raise ValueError(f"{path} {EARLIER_VERSION}") from None
        what = first_mistake(error)
    except ValueError as error:
        what = str(error)
    raise ValueError(f"{path} is damaged ({what}): {advice}")
