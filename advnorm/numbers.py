"""Numbers as people write them: ``0.03``, ``1e-3`` and ``8/255``."""

from advnorm.text import shorten


def parse_number(text: str) -> float:
    """Read a decimal or a fraction; anything else is refused.

    >>> parse_number("8/255") == 8 / 255, parse_number("1e-3")
    (True, 0.001)
    >>> parse_number("8/0")
    Traceback (most recent call last):
    ValueError: '8/0' is not a number: write 0.03 or 8/255
    """
    numerator, slash, denominator = text.replace(" ", "").partition("/")
    try:
        return float(numerator) / float(denominator) if slash else float(numerator)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{shorten(text)} is not a number: write 0.03 or 8/255") from None
