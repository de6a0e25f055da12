"""Numeric arrays of a MATLAB 5 file (MathWorks, "MAT-File Format", chapter 1).

After 128 bytes of header come elements: a tag (type and number of bytes), then the bytes.
An array is an element of four or five: flags, dimensions, name, values, imaginary values.
It may be compressed. All other content is skipped without being parsed.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advnorm.data.archives import RefusedError, expansion_limit
from advnorm.data.blob import Blob

_ARRAY, _COMPRESSED = 14, 15
_NUMERIC = range(6, 16)
"""Classes of arrays: double, single, and whole numbers of 8 to 64 bits."""
_DTYPES = {
    **{1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4"},
    **{6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"},
}


class MatElement(NamedTuple):
    """The type in a tag, and the bytes after it."""

    kind: int
    data: memoryview


def arrays(blob: Blob) -> dict[str, NDArray[Any]]:
    """Return the real numeric arrays of a file, in the types they are stored in."""
    order = {b"IM": "<", b"MI": ">"}.get(blob.data[126:128])
    if order is None:
        raise blob.error("is cut short or no MATLAB 5 file")
    numeric: dict[str, NDArray[Any]] = {}
    room = expansion_limit(len(blob.data))
    try:
        for element in _elements(memoryview(blob.data)[128:], order):
            if element.kind == _COMPRESSED:
                content = _inflate(element.data, room)
                room -= len(content)
                element = next(_elements(content, order))
            if element.kind == _ARRAY:
                numeric |= _array(element.data, order)
    except RefusedError as error:
        raise blob.error(str(error)) from None
    except (ValueError, struct.error, zlib.error, KeyError, StopIteration) as error:
        raise blob.error(f"is cut short or damaged ({error})") from error
    return numeric


def _inflate(packed: memoryview, room: int) -> memoryview:
    inflater = zlib.decompressobj()
    content = inflater.decompress(packed, room + 1)
    if len(content) > room:
        raise RefusedError("expands to far more than its size")
    if not inflater.eof:
        raise ValueError("a compressed array does not end")
    return memoryview(content)


def _elements(data: memoryview, order: str) -> Iterator[MatElement]:
    """Yield consecutive elements, each padded to eight bytes."""
    while len(data):
        kind, size = struct.unpack_from(f"{order}2I", data)
        start, step = 8, 8 + size + (-size % 8 if kind != _COMPRESSED else 0)
        if kind >> 16:  # a small element: size and kind in four bytes, data in four
            kind, size, start, step = kind & 0xFFFF, kind >> 16, 4, 8
        if start + size > min(step, len(data)):
            raise ValueError("an element is longer than the rest of the file")
        yield MatElement(kind, data[start : start + size])
        data = data[step:]


def _array(data: memoryview, order: str) -> dict[str, NDArray[Any]]:
    """Return one real numeric array by its name; nothing for any other class."""
    parts = _elements(data, order)
    flags = struct.unpack_from(f"{order}I", next(parts).data)[0]
    if flags & 0xFF not in _NUMERIC or flags & 0x800:
        return {}
    shape = np.frombuffer(next(parts).data, f"{order}i4")
    name = bytes(next(parts).data).decode("latin-1")
    values = next(parts)
    flat = np.frombuffer(values.data, f"{order}{_DTYPES[values.kind]}")
    if (shape < 0).any() or len(shape) > 8:
        raise ValueError(f"an array has the shape {shape[:8].tolist()}")
    return {name: flat.reshape(shape.tolist(), order="F")}
