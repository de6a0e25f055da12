"""Make text of unknown origin safe to show: no control characters, limited length."""

import re
from reprlib import Repr

LINE = 200
"""The most characters of a value in an error message."""
MESSAGE = 10_000
"""The most characters of a whole error message."""

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # order of the text, lines
    "\ud800-\udfff]"  # bytes of a name that is not UTF-8
)


def printable(text: str) -> str:
    r"""Return text with control characters escaped.

    Tabs and newlines are kept. Characters that change the text direction are escaped too,
    and so are the bytes of a file name that is not UTF-8.

    >>> printable("a\x1b[2Jb\n"), printable("\udcff.png")
    ('a\\x1b[2Jb\n', '\\xff.png')
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that Python could not decode
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def cut(text: str, length: int = LINE) -> str:
    """Shorten a text to ``length`` characters: its beginning and its end.

    >>> cut("0123456789", 7)
    '012...9'
    """
    if len(text) <= length:
        return text
    tail = (length - 3) // 4
    return f"{text[: length - 3 - tail]}...{text[len(text) - tail :]}"


def on_one_line(error: BaseException, length: int = LINE) -> str:
    r"""Return the kind of an error and its text, on one line.

    >>> on_one_line(OSError("no connection:\n  try again"))
    'OSError: no connection: try again'
    """
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {cut(' '.join(text.split()), length)}"


def shorten(value: object, length: int = LINE) -> str:
    """Return a short ``repr`` of a plain value, however large or deep it is.

    The work is bounded too: with aliases, a few bytes of YAML can expand without limit.

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
        """Write an integer, or its size: Python refuses to print very long ones."""
        bits = x.bit_length()
        return repr(x) if bits < 1000 else f"an integer of {bits} bits"

    def repr_bytes(self, x: bytes, level: int) -> str:
        """Write the beginning of some bytes."""
        return cut(repr(x[:LINE]))


_BOUNDED = _Bounded()
