"""Text from elsewhere, made fit to be shown: no control characters, no endless values."""

import re
from reprlib import Repr

LINE = 200
"""Characters of a value in an error."""
MESSAGE = 10_000
"""Characters of a whole error."""

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # order of the text, lines
    "\ud800-\udfff]"  # bytes of a name that is not UTF-8
)


def printable(text: str) -> str:
    r"""Return text in which what would steer a terminal is written out.

    Tabs and line ends stay. Control characters and those that turn the direction of text
    become escapes, and so do the bytes of a file name that is not UTF-8.

    >>> printable("a\x1b[2Jb\n"), printable("\udcff.png")
    ('a\\x1b[2Jb\n', '\\xff.png')
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte that it could not decode
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def cut(text: str, length: int = LINE) -> str:
    """Return at most ``length`` characters of a text: its beginning and its end.

    >>> cut("0123456789", 7)
    '012...9'
    """
    if len(text) <= length:
        return text
    tail = (length - 3) // 4
    return f"{text[: length - 3 - tail]}...{text[len(text) - tail :]}"


def shorten(value: object, length: int = LINE) -> str:
    """Return a short ``repr`` of a plain value, however large or deep it is.

    The work is bounded too: by aliases, a few bytes of YAML hold more than fits in memory.

    >>> shorten([[1, 2], "x"]), shorten(list(range(1000)))
    ("[[1, 2], 'x']", '[0, 1, 2, 3, 4, 5, 6, 7, ...]')
    """
    return cut(_BOUNDED.repr(value), length)


class _Bounded(Repr):
    """A ``repr`` of a few items at a few levels."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 8
        self.maxstring = self.maxother = LINE

    def repr_int(self, x: int, level: int) -> str:
        """Write a whole number, or say how large it is: Python refuses to write it all."""
        bits = x.bit_length()
        return repr(x) if bits < 1000 else f"a whole number of {bits} bits"

    def repr_bytes(self, x: bytes, level: int) -> str:
        """Write the beginning of some bytes."""
        return cut(repr(x[:LINE]))


_BOUNDED = _Bounded()
