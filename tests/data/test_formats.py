"""Damaged and hostile files of every format: refused by name, in bounded time and memory."""

import gzip
import random
import struct

import numpy as np
import pytest
from data_files import PAGE, RNG, idx_bytes, npy_bytes, write_mnist, write_zip

from advnorm.data import load
from advnorm.data.archives import MIN_LIMIT
from advnorm.data.blob import Blob
from advnorm.data.formats import idx, npy

IMAGES = "train-images-idx3-ubyte"


def load_npz(tmp_path, **arrays):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    return load(f"npz:{path}")


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"x_train": np.zeros((2, 3))}, "has no y_train, x_test, y_test"),
        ({"images": np.zeros((2, 3)), "labels": np.array([0, None])}, "Python objects"),
        ({"images": np.full((2, 3), 1.5), "labels": np.arange(2)}, r"outside of \[0, 1\]"),
        (
            {"images": np.array([[0.0], [np.nan]]), "labels": np.arange(2)},
            "NaN or infinite values",
        ),
        ({"images": np.full((2, 3), -np.inf), "labels": np.arange(2)}, "NaN or infinite"),
        ({"images": np.zeros((2, 3), np.int64), "labels": np.arange(2)}, "images of int64"),
        ({"images": np.zeros((2, 3)), "labels": np.arange(3)}, "2 images but .* 3 labels"),
        ({"images": np.zeros((2, 3)), "labels": np.array([0, -1])}, r"labels \(-1, 0\)"),
        (
            {"images": np.zeros((2, 3)), "labels": np.array([0, 10**9])},
            r"\(0, 1000000000\)",
        ),
        (
            {"images": np.zeros((3, 3)), "labels": np.array([0, 5, 10])},
            r"3 different labels \(0, 5, 10\) .*number the classes 0 to 2",
        ),
        (
            {"images": np.zeros((2, 3)), "labels": np.array([0, 9]), "classes": ["a", "b"]},
            "has the label 9, outside of 0 to 1",
        ),
        (
            {"images": np.zeros((2, 3)), "labels": np.arange(2), "classes": np.array("ab")},
            "'classes' that is no list",
        ),
        ({"images": np.zeros((2, 3)), "labels": np.array(1)}, "not n integers|labels"),
        ({"images": np.zeros((2, 3)), "labels": np.array([0.0, 1.0])}, "not n integers"),
        ({"images": np.zeros((2, 4, 4, 2)), "labels": np.arange(2)}, "images of shape"),
    ],
)
def test_a_bad_npz_names_file_and_fault(tmp_path, arrays, why):
    with pytest.raises(ValueError, match=f"bad.npz[ /].*{why}.*savez"):
        load_npz(tmp_path, **arrays)


@pytest.mark.parametrize("empty", ["train", "test"])
def test_an_npz_with_an_empty_split_is_refused(tmp_path, empty):
    arrays = {}
    for part in ("train", "test"):
        count = 0 if part == empty else 4
        arrays |= {f"x_{part}": np.zeros((count, 3)), f"y_{part}": np.arange(count) % 2}
    with pytest.raises(ValueError, match=r"a split without any image \(shape \(0, 3\)"):
        load_npz(tmp_path, **arrays)


def test_an_npz_with_one_class_or_too_few_images_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has 1 class: give at least 2 classes"):
        load_npz(tmp_path, images=np.zeros((9, 3)), labels=np.zeros(9, int))
    with pytest.raises(ValueError, match="2 images are too few to take 20% for the test"):
        load_npz(tmp_path, images=np.zeros((2, 3)), labels=np.arange(2))


def test_npz_that_is_none_or_cut_short(tmp_path):
    path = tmp_path / "own.npz"
    with pytest.raises(FileNotFoundError, match="give the path of an npz file"):
        load(f"npz:{path}")
    np.savez(path, images=np.zeros((9, 3)), labels=np.zeros(9, int))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="cut short or no archive"):
        load(f"npz:{path}")
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is no npz file"):
        load(f"npz:{path}")
    path.write_bytes(npy_bytes(np.zeros(3)))
    with pytest.raises(ValueError, match="is no npz file"):
        load(f"npz:{path}")
    with pytest.raises(ValueError, match="npz:PATH"):
        load("npz")


def test_damaged_npz_files_are_read_or_refused(tmp_path):
    path, chance, refused = tmp_path / "own.npz", random.Random(0), 0
    images, labels = RNG.integers(0, 256, (20, 4, 4), dtype=np.uint8), np.arange(20) % 2
    np.savez_compressed(path, images=images, labels=labels)
    data = path.read_bytes()
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 3))):
            damaged[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            load(f"npz:{path}")
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("change", [lambda b: b[:-7], lambda b: b"", lambda b: PAGE])
def test_a_bad_npy_is_named(tmp_path, change):
    labels = tmp_path / "cifar10.1_v6_labels.npy"
    (tmp_path / "cifar10.1_v6_data.npy").write_bytes(
        npy_bytes(np.zeros((2, 32, 32, 3), np.uint8))
    )
    labels.write_bytes(change(npy_bytes(np.zeros(2, int))))
    with pytest.raises(ValueError, match=r"v6_labels\.npy is (cut short|a web page)"):
        load("cifar10.1", root=tmp_path)


def test_a_pickle_in_an_npy_is_not_run(tmp_path):
    np.save(tmp_path / "cifar10.1_v6_data.npy", np.array([object()]), allow_pickle=True)
    (tmp_path / "cifar10.1_v6_labels.npy").write_bytes(npy_bytes(np.zeros(2, int)))
    with pytest.raises(
        ValueError, match=r"v6_data\.npy is cut short, has Python objects or is no npy file"
    ):
        load("cifar10.1", root=tmp_path)


def npy_with_header(header: str, body: bytes = b"", version: int = 1) -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<H", len(text)) + text + body


HEADERS = {
    "huge": "{'descr': '|u1', 'fortran_order': False, 'shape': (10000000000000,)}",
    "overflow": "{'descr': '|u1', 'fortran_order': False, 'shape': (2**62, 8)}",
    "beyond": f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**62}, 64)}}",
    "negative": "{'descr': '|u1', 'fortran_order': False, 'shape': (-5,)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "no bytes": "{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000,)}",
    "no letters": "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000,)}",
    "deep": "(" * 9000,
    "minus": "-" * 9000 + "1",
    "type": "{'descr': [('a', 'x')], 'fortran_order': False, 'shape': (1,)}",
    "text": "__import__('os').abort()",
    "many": "{'descr': '|u1', 'fortran_order': False, 'shape': (" + "1," * 100 + ")}",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_header_that_lies_is_one_sentence(header, tmp_path):
    content = npy_with_header(header, b"1234")
    with pytest.raises(ValueError, match=r"^array .*: remedy$") as error:
        npy(Blob("array", content, "remedy"))
    assert len(str(error.value)) < 600
    names = ("images.npy", "labels.npy", "classes.npy")
    write_zip(tmp_path / "own.npz", dict.fromkeys(names, content))
    with pytest.raises(ValueError, match=r"own\.npz/images\.npy .*numpy\.savez"):
        load(f"npz:{tmp_path / 'own.npz'}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda b: b[:-1], "has 31375 bytes, not 31376"),
        (lambda b: b + b"x", "has 31377 bytes, not 31376"),
        (lambda b: b[:9], "cut short in its header"),
        (
            lambda b: b"\x00\x00\x0d\x03" + b[4:],
            "begins with 00000d03, not the IDX 00000803",
        ),
        (lambda b: b[:4], "cut short"),
        (lambda b: b"", "begins with"),
        (lambda b: PAGE, "is a web page"),
        (lambda b: gzip.compress(b)[:-9], "cut short or damaged"),
        (lambda b: gzip.compress(b)[:50] + b"\0" * 99, "cut short or damaged"),
        (
            lambda b: idx_bytes(np.zeros((39, 28, 28))),
            "39 images but .*labels.* has 40 labels",
        ),
    ],
)
def test_a_bad_idx_file_is_named_with_the_remedy(tmp_path, change, why):
    write_mnist(tmp_path, zipped=False)
    path = tmp_path / IMAGES
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(
        ValueError, match=f"{IMAGES} .*{why}.*: remove it and run: advnorm data"
    ):
        load("mnist", root=tmp_path)


def test_a_label_outside_of_the_classes_is_refused(tmp_path):
    write_mnist(tmp_path, zipped=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.full(20, 10)))
    with pytest.raises(
        ValueError, match=r"t10k-labels.* has the label 10, outside of 0 to 9"
    ):
        load("mnist", root=tmp_path)


def test_a_gzip_bomb_is_refused():
    content = struct.pack(">4B3I", 0, 0, 8, 3, 60_000, 28, 28) + bytes(MIN_LIMIT + 1)
    with pytest.raises(ValueError, match="images expands to far more than its size: r"):
        idx(Blob("images", gzip.compress(content), "r"), dimensions=3)


def test_an_idx_header_that_lies_is_refused():
    content = struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    for data in (content + b"1", gzip.compress(content)):
        with pytest.raises(ValueError, match=r"has 1[67] bytes, not 792281"):
            idx(Blob("images", data, "r"), dimensions=3)
