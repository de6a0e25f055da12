"""Data files that were made to hurt: one sentence, in bounded time and memory."""

import gzip
import io
import os
import random
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from advnorm.data import load, matlab
from advnorm.data.archives import RATIO, SMALL, members, most_expanded
from advnorm.data.blob import Blob
from advnorm.data.decode import SCANNED, decode, probe
from advnorm.data.formats import idx, npy
from advnorm.files import memory

RNG = np.random.default_rng(0)
ZEROS = bytes(SMALL + 1)


def picture(side=(8, 8), kind="PNG", **options) -> bytes:
    buffer = io.BytesIO()
    pixels = RNG.integers(0, 256, (*side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def tree(root: Path) -> Path:
    """Make a folder of images, and return the first."""
    for part in ("train", "test"):
        for label in ("cat", "dog"):
            for i in range(3):
                path = root / part / label / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture())
    return root / "train" / "cat" / "0.png"


def everything(data) -> None:
    for split in (data.train, data.validation, data.test):
        order = torch.arange(len(split))
        list(split.batches(order, batch_size=4, device=torch.device("cpu")))


# Image folders


@pytest.mark.parametrize("name", ["0.png", "1.png"])
@pytest.mark.parametrize("kind", ["pipe", "zero", "gone", "sparse"])
def test_a_folder_reads_regular_files_of_some_size_alone(tmp_path, kind, name):
    path = tree(tmp_path).with_name(name)
    path.unlink()
    make = {
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "gone": lambda: path.symlink_to("nowhere"),
        "sparse": lambda: (path.touch(), os.truncate(path, 1 << 40)),
    }
    make[kind]()
    with pytest.raises(ValueError, match=rf"cat/{name} cannot be read \(.*replace it"):
        everything(load(f"folder:{tmp_path}", workers=0))


@pytest.mark.parametrize("kind", ["pipe", "zero"])
def test_a_folder_is_refused_before_training_and_not_in_the_middle(tmp_path, kind):
    path = tree(tmp_path).with_name("2.png")
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"2\.png cannot be read .*not a regular file"):
        load(f"folder:{tmp_path}", workers=0).digest()


def test_a_folder_that_is_called_like_an_image_is_walked_and_links_are_read(tmp_path):
    first = tree(tmp_path / "images")
    (first.parent / "x.png").mkdir()
    (first.parent / "x.png" / "y.png").write_bytes(picture())
    (tmp_path / "elsewhere.png").write_bytes(picture())
    (first.parent / "z.png").symlink_to(tmp_path / "elsewhere.png")
    (first.parent / "loop").symlink_to(first.parent)
    data = load(f"folder:{tmp_path / 'images'}", workers=0, validation=0)
    assert len(data.train) == 8
    everything(data)


def test_a_class_with_escapes_in_its_name_is_harmless(tmp_path, monkeypatch, capsys):
    from advnorm import cli

    tree(tmp_path)
    bad = tmp_path / "test" / "\x1b]0;title\x07\u202e"
    bad.mkdir()
    (bad / "a.png").write_bytes(picture())
    command = ["train", "digits.pgd", "--set", f"data.name=folder:{tmp_path}"]
    monkeypatch.setattr("sys.argv", ["advnorm", *command, "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr().err
    assert end.value.code == 2 and "\\x1b]0;title" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)


# Images


def chunk(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )


def png_of(width: int, height: int) -> bytes:
    """Return a PNG that says it is this large, with hardly any data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg_of(width: int, height: int) -> bytes:
    """Return a JPEG whose frame says it is this large."""
    data = picture(kind="JPEG")
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


@pytest.mark.parametrize(
    "data",
    [
        png_of(9500, 9500),  # where PIL only warns
        png_of(20_000, 20_000),
        png_of(2**31 - 1, 2**31 - 1),
        jpeg_of(9500, 9500),
        jpeg_of(65_500, 65_500),
    ],
    ids=["warned", "large", "largest", "JPEG, warned", "JPEG"],
)
def test_a_decompression_bomb_is_one_sentence(data):
    for read in (probe, lambda blob: decode(blob, None, channels=3, size=8)):
        with pytest.raises(
            ValueError, match=r"is no readable JPEG or PNG .*bomb.*: remedy"
        ):
            read(Blob("image", data, "remedy"))


def test_a_jpeg_of_a_thousand_scans_is_refused():
    data = picture((1200, 1200), "JPEG", progressive=True)
    assert probe(Blob("image", data, "")) == (3, 1200)
    last = data[data.rindex(b"\xff\xda") : -2]
    count = SCANNED // 1200**2
    with pytest.raises(ValueError, match="scans of 1200 x 1200 pixels"):
        probe(Blob("image", data[:-2] + last[:40] * count + data[-2:], ""))


@pytest.mark.parametrize(
    "kind, options", [("PNG", {}), ("JPEG", {}), ("JPEG", {"progressive": True})]
)
def test_damaged_images_are_decoded_or_refused(kind, options):
    data, chance, refused = picture((24, 20), kind, **options), random.Random(0), 0
    for number in range(400):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 3, 10))):
            place = chance.randrange(len(data) if number % 2 else 120)
            damaged[place] = chance.randrange(256)
        if not number % 5:
            del damaged[chance.randrange(len(data)) :]
        try:
            decode(Blob("image", bytes(damaged), "remedy"), None, channels=3, size=8)
        except ValueError as error:
            assert str(error).startswith("image ") and str(error).endswith(": remedy")
            refused += 1
    assert 50 < refused < 400


# Arrays


def npy_of(header: str, body: bytes = b"", version: int = 1) -> bytes:
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
    content = npy_of(header, b"1234")
    with pytest.raises(ValueError, match=r"^array .*: remedy$") as error:
        npy(Blob("array", content, "remedy"))
    assert len(str(error.value)) < 600
    with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
        for name in ("images", "labels", "classes"):
            archive.writestr(f"{name}.npy", content)
    with pytest.raises(ValueError, match=r"own\.npz/images\.npy .*numpy\.savez"):
        load(f"npz:{tmp_path / 'own.npz'}")


def test_a_zip_bomb_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", ZEROS)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"own\.npz expands to far more than its size"):
        load(f"npz:{path}")


def test_a_zip_whose_sizes_are_lies_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", ZEROS)
    true, said = struct.pack("<I", len(ZEROS)), struct.pack("<I", 1000)
    path.write_bytes(path.read_bytes().replace(true, said))
    with pytest.raises(ValueError, match=r"own\.npz is cut short or no archive .*CRC"):
        load(f"npz:{path}")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_of_another_method_is_refused(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "own.npz", "w", method) as archive:
        archive.writestr("images.npy", b"x" * 1000)
    with pytest.raises(ValueError, match="compressed, but not by deflate"):
        load(f"npz:{tmp_path / 'own.npz'}")


def test_an_encrypted_zip_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"x")
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        load(f"npz:{path}")


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


def test_what_a_compressed_file_may_become():
    assert most_expanded(1000) == SMALL
    assert most_expanded(SMALL) == min(RATIO * SMALL, memory() // 2)
    assert most_expanded(1 << 60) == memory() // 2


# Archives


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def cifar10(root: Path) -> None:
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz .*: remove .* and run"):
        load("cifar10", root=root)


@pytest.mark.parametrize("name", ["data_batch_1.bin", "other.bin"])
def test_a_tar_bomb_is_refused_wherever_it_is(tmp_path, name):
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        add(archive, f"cifar-10-batches-bin/{name}", ZEROS)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="expands to far more than its size"):
        load("cifar10", root=tmp_path)


def test_a_tar_with_a_sparse_member_is_refused(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    member = tarfile.TarInfo("data_batch_1.bin")
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = tarfile.itn(1 << 36, 12, tarfile.GNU_FORMAT)  # its size on the disk
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    cifar10(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        {"size": 1 << 62},
        {"size": 1 << 40, "type": tarfile.XHDTYPE},
        {"size": 1 << 40, "type": tarfile.GNUTYPE_LONGNAME},
        {"linkname": "/etc/passwd", "type": tarfile.SYMTYPE},
        {"type": tarfile.FIFOTYPE},
        {"type": tarfile.CHRTYPE},
    ],
    ids=str,
)
def test_a_tar_header_that_lies_is_one_sentence(tmp_path, header):
    member = tarfile.TarInfo("data_batch_1.bin")
    for name, value in header.items():
        setattr(member, name, value)
    content = member.tobuf(tarfile.GNU_FORMAT) + bytes(2048)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(content))
    cifar10(tmp_path)


def test_an_archive_that_is_no_regular_file_is_not_looked_at(tmp_path):
    os.mkfifo(tmp_path / "cifar-10-binary.tar.gz")
    with pytest.raises(FileNotFoundError, match="no cifar10 under"):
        load("cifar10", root=tmp_path)
    with pytest.raises(ValueError, match="is a pipe, not a regular file"):
        list(members(tmp_path / "cifar-10-binary.tar.gz", lambda name: True, remedy="r"))


def test_damaged_archives_are_read_or_refused(tmp_path):
    chance, packed = random.Random(0), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for number in range(3):
            add(archive, f"a/{number}.png", RNG.bytes(300))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as other:
        for number in range(3):
            other.writestr(f"a/{number}.png", RNG.bytes(300))
    for data in (packed.getvalue(), gzip.decompress(packed.getvalue()), zipped.getvalue()):
        for _ in range(200):
            damaged = bytearray(data)
            for _ in range(chance.choice((1, 3, 20))):
                damaged[chance.randrange(len(data))] = chance.randrange(256)
            try:
                list(members(Blob("a", bytes(damaged), ""), lambda name: True, remedy="r"))
            except ValueError as error:
                assert str(error).startswith("a ") and str(error).endswith(": r")


def test_tiny_imagenet_reads_no_file_outside_of_its_folder(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for label in ("a", "b"):
        path = root / "train" / label / "images" / "0.JPEG"
        path.parent.mkdir(parents=True)
        path.write_bytes(picture(kind="JPEG"))
    (root / "val" / "images").mkdir(parents=True)
    for name in ("../../../secret.png", "/dev/zero", ".."):
        (root / "val" / "val_annotations.txt").write_text(f"{name}\ta\n")
        with pytest.raises(ValueError, match="names a file that is not in its folder"):
            load("tiny-imagenet", root=tmp_path)


# IDX, gzip


def test_a_gzip_bomb_is_refused():
    content = struct.pack(">4B3I", 0, 0, 8, 3, 60_000, 28, 28) + ZEROS
    with pytest.raises(ValueError, match="images expands to far more than its size: r"):
        idx(Blob("images", gzip.compress(content), "r"), dimensions=3)


def test_an_idx_header_that_lies_is_refused():
    content = struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    for data in (content + b"1", gzip.compress(content)):
        with pytest.raises(ValueError, match=r"has 1[67] bytes, not 792281"):
            idx(Blob("images", data, "r"), dimensions=3)


# MATLAB


def mat_of(arrays: dict, **options) -> bytes:
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
    data = mat_of(arrays | others, do_compression=compressed)
    found = matlab.arrays(Blob("m", data, "r"))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype


def svhn(root: Path, content: bytes) -> None:
    for name in ("train", "test"):
        (root / f"{name}_32x32.mat").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"train_32x32\.mat .*: remove it and run"
    ) as error:
        load("svhn", root=root)
    assert len(str(error.value)) < 1000


def test_a_matlab_bomb_is_refused(tmp_path):
    svhn(
        tmp_path,
        mat_of({"X": np.zeros((32, 32, 3, 25_000), np.uint8)}, do_compression=True),
    )
    bomb = mat_of({"other": np.zeros(SMALL + 1, np.uint8)}, do_compression=True)
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
    svhn(tmp_path, data)


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_matlab_files_are_read_or_refused(compressed):
    arrays = {"X": RNG.integers(0, 256, (3, 3, 3, 4), dtype=np.uint8), "y": np.arange(4)}
    data, chance = mat_of(arrays, do_compression=compressed), random.Random(0)
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


# Paths


@pytest.mark.parametrize(
    "name",
    [
        "folder:\0",
        "npz:\0",
        "folder:/dev/zero",
        "npz:/dev/zero",
        "npz:/",
        "folder:" + "a/" * 999,
    ],
)
def test_a_path_that_leads_nowhere_is_one_error(name):
    with pytest.raises((ValueError, OSError)) as error:
        load(name)
    assert len(str(error.value)) < 5000
