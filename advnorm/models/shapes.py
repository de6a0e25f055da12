"""Is an input's shape one that a model can take."""

from math import prod


def image(shape: tuple[int, ...], *, model: str, least: int = 1) -> tuple[int, int, int]:
    """Return (channels, height, width), both sides being at least ``least``.

    >>> image((3, 32, 32), model="vgg8", least=32)
    (3, 32, 32)
    """
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"{model} takes images of shape (channels, height, width), not {tuple(shape)}"
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise ValueError(
            f"{model} takes images of at least {least}x{least}, not {height}x{width}"
        )
    return channels, height, width


def features(shape: tuple[int, ...], *, model: str) -> int:
    """Return the number of values in one input of any shape.

    >>> features((1, 28, 28), model="mlp")
    784
    """
    if not shape or min(shape) < 1:
        raise ValueError(f"{model} takes inputs of a shape like (2,), not {tuple(shape)}")
    return prod(shape)


def after(size: int, kernel: int, *, stride: int = 1, padding: int = 0) -> int:
    """Return the size of one side after a convolution or a pooling.

    >>> after(32, 4, stride=2)
    15
    """
    return (size + 2 * padding - kernel) // stride + 1


def positive(name: str, value: int, *, model: str) -> int:
    """Return a width, a depth or the like, which must be at least 1."""
    if value < 1:
        raise ValueError(f"{model} needs a {name} of at least 1, not {value}")
    return value
