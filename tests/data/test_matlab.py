"""MATLAB files: read as written, and refused by name when damaged or hostile."""

import io
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from data_files import RNG
from scipy.io import savemat

from advnorm.data import load, matlab
from advnorm.data.archives import MIN_LIMIT
from advnorm.data.blob import Blob


def mat_bytes(arrays: dict, **options) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, arrays, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_matlab_arrays_are_read_as_they_were_written(compressed):
    arrays = {
        "X": RNG.integers(0, 256, (4, 3, 2, 5), dtype=np.uint8),
        "y": np.arange(5, dtype=np.uint8)[:, None],
        **{
            f"a{kind}": np.arange(6).reshape(2, 3).astype(kind)
            for kind in ("i2", "f4", "f8")
        },
        "empty": np.zeros((0, 3)),
        "a_name_that_is_longer_than_eight_letters": np.ones((1, 1), np.int64),
    }
    others = {"text": "abc", "cells": np.array([1, "a"], object), "c": np.array([[1j]])}
    data = mat_bytes(arrays | others, do_compression=compressed)
    read = matlab.arrays(Blob("m", data, "r"))
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(read[name], array) and read[name].dtype == array.dtype


@pytest.mark.parametrize("keep", [0, 100, 700, -20])
def test_a_matlab_file_cut_short_is_named(tmp_path, keep):
    pixels = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    content = mat_bytes({"X": pixels, "y": np.ones((4, 1), np.uint8)}, do_compression=True)
    write_svhn(tmp_path, content)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"train_32x32\.mat .*remove it"):
        load("svhn", root=tmp_path)


def test_a_matlab_file_without_its_arrays_is_named(tmp_path):
    write_svhn(tmp_path, mat_bytes({"y": np.ones((4, 1), np.uint8)}))
    with pytest.raises(ValueError, match=r"train_32x32\.mat has no array 'X'"):
        load("svhn", root=tmp_path)
    write_svhn(tmp_path, mat_bytes({"X": np.zeros(3), "y": np.ones(4)}))
    with pytest.raises(ValueError, match="has X of float64"):
        load("svhn", root=tmp_path)


def write_svhn(root: Path, content: bytes) -> None:
    for name in ("train", "test"):
        (root / f"{name}_32x32.mat").write_bytes(content)


def assert_svhn_refused(root: Path, content: bytes) -> None:
    write_svhn(root, content)
    with pytest.raises(
        ValueError, match=r"train_32x32\.mat .*: remove it and run"
    ) as error:
        load("svhn", root=root)
    assert len(str(error.value)) < 1000


def test_a_matlab_bomb_is_refused(tmp_path):
    assert_svhn_refused(
        tmp_path,
        mat_bytes({"X": np.zeros((32, 32, 3, 25_000), np.uint8)}, do_compression=True),
    )
    bomb = mat_bytes({"other": np.zeros(MIN_LIMIT + 1, np.uint8)}, do_compression=True)
    with pytest.raises(ValueError, match="expands to far more than its size"):
        matlab.arrays(Blob("m", bomb, "r"))


def test_cells_in_cells_are_skipped_and_not_walked(tmp_path):
    """A parser that walks them runs out of stack."""
    flags = struct.pack("<4I", 6, 8, 1, 0)
    shape = struct.pack("<4I", 5, 8, 1, 1)
    name = struct.pack("<I4s", 1 << 16 | 1, b"X")
    inner = b""
    for _ in range(2000):
        body = flags + shape + name + inner
        inner = struct.pack("<2I", 14, len(body)) + body
    data = b" " * 124 + b"\0\1IM" + inner
    assert matlab.arrays(Blob("m", data, "r")) == {}
    assert_svhn_refused(tmp_path, data)


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_matlab_files_are_read_or_refused(compressed):
    arrays = {"X": RNG.integers(0, 256, (3, 3, 3, 4), dtype=np.uint8), "y": np.arange(4)}
    data, chance = mat_bytes(arrays, do_compression=compressed), random.Random(0)
    for number in range(1000):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 3))):
            damaged[chance.randrange(120, len(data))] = chance.choice(
                (0, 255, number % 256)
            )
        if not number % 7:
            del damaged[chance.randrange(len(data)) :]
        try:
            matlab.arrays(Blob("m", bytes(damaged), "r"))
        except ValueError as error:
            assert str(error).startswith("m ") and str(error).endswith(": r")
