"""Damaged and hostile archives: refused by name, in bounded time and memory."""

import gzip
import os
import random
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from data_files import PAGE, RNG, add_to_tar, cifar10_files, npy_bytes, write_tar, write_zip

from advnorm.data import load
from advnorm.data.archives import MAX_RATIO, MIN_LIMIT, expansion_limit, members
from advnorm.data.blob import Blob
from advnorm.files import memory

ZEROS = bytes(MIN_LIMIT + 1)


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"../evil.bin": b"x"}, r"outside of its folder \(\.\./evil\.bin\)"),
        ({"a/../../evil": b"x"}, "outside of its folder"),
        ({"/etc/evil": b"x"}, r"outside of its folder \(/etc/evil\)"),
        ({"..\\evil": b"x"}, "outside of its folder"),
        ({"cifar-10-batches-bin/test_batch.bin": b"12345"}, "test_batch.bin has 5 bytes"),
        ({"cifar-10-batches-bin/test_batch.bin": b"\x0a" * 3073}, "has the label 10"),
    ],
)
def test_a_bad_archive_is_refused(tmp_path, extra, why):
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_tar(path, {**cifar10_files(), **extra})
    with pytest.raises(ValueError, match=f"cifar-10-binary.tar.gz.*{why}"):
        load("cifar10", root=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_an_archive_cut_short_or_incomplete_or_a_page(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    files = cifar10_files()
    write_tar(path, files)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(
        ValueError, match=r"tar\.gz is cut short or no archive.*advnorm data get"
    ):
        load("cifar10", root=tmp_path)
    path.write_bytes(PAGE)
    with pytest.raises(ValueError, match="is a web page"):
        load("cifar10", root=tmp_path)
    del files["cifar-10-batches-bin/data_batch_3.bin"]
    write_tar(path, files)
    with pytest.raises(ValueError, match=r"has no member data_batch_3\.bin"):
        load("cifar10", root=tmp_path)


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    files = cifar10_files()
    del files["cifar-10-batches-bin/test_batch.bin"]
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            add_to_tar(archive, name, content)
        link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "data_batch_1.bin"
        archive.addfile(link)
    with pytest.raises(ValueError, match=r"no member test_batch\.bin"):
        load("cifar10", root=tmp_path)


def test_a_bad_zip_member_is_refused(tmp_path):
    files = {
        "mnist_c/fog/test_images.npy": npy_bytes(np.zeros((1, 28, 28, 1), np.uint8)),
        "mnist_c/fog/test_labels.npy": npy_bytes(np.zeros(1, int)),
        "../evil": b"x",
    }
    write_zip(tmp_path / "mnist_c.zip", files)
    with pytest.raises(ValueError, match=r"mnist_c.zip has a member outside .*\.\./evil"):
        load("mnist-c:fog", root=tmp_path)


def test_one_flipped_bit_of_an_archive_is_never_read_in_silence(tmp_path):
    """The checksum of gzip is after the last member."""
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    write_tar(path, cifar10_files(4))
    whole = path.read_bytes()
    assert len(load("cifar10", root=tmp_path, validation=0.1).test) == 4
    for place in RNG.integers(20, len(whole) - 8, 40):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(RNG.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"advnorm data get cifar10"):
            load("cifar10", root=tmp_path, validation=0.1)
    for damaged in (whole[:-8] + b"\0" * 8, whole[:-8], whole + b"junk"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="cut short or no archive"):
            load("cifar10", root=tmp_path, validation=0.1)


def test_a_zip_bomb_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    write_zip(path, {"images.npy": ZEROS}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"own\.npz expands to far more than its size"):
        load(f"npz:{path}")


def test_a_zip_whose_sizes_are_lies_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    write_zip(path, {"images.npy": ZEROS}, zipfile.ZIP_DEFLATED)
    true, output = struct.pack("<I", len(ZEROS)), struct.pack("<I", 1000)
    path.write_bytes(path.read_bytes().replace(true, output))
    with pytest.raises(ValueError, match=r"own\.npz is cut short or no archive .*CRC"):
        load(f"npz:{path}")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_of_another_method_is_refused(tmp_path, method):
    write_zip(tmp_path / "own.npz", {"images.npy": b"x" * 1000}, method)
    with pytest.raises(ValueError, match="compressed, but not by deflate"):
        load(f"npz:{tmp_path / 'own.npz'}")


def test_an_encrypted_zip_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    write_zip(path, {"images.npy": b"x"})
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        load(f"npz:{path}")


def test_a_compressed_file_may_expand_to_a_limit():
    assert expansion_limit(1000) == MIN_LIMIT
    assert expansion_limit(MIN_LIMIT) == min(MAX_RATIO * MIN_LIMIT, memory() // 2)
    assert expansion_limit(1 << 60) == memory() // 2


def assert_cifar10_refused(root: Path) -> None:
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz .*: remove .* and run"):
        load("cifar10", root=root)


@pytest.mark.parametrize("name", ["data_batch_1.bin", "other.bin"])
def test_a_tar_bomb_is_refused_wherever_it_is(tmp_path, name):
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_tar(path, {f"cifar-10-batches-bin/{name}": ZEROS})
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
    assert_cifar10_refused(tmp_path)


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
    assert_cifar10_refused(tmp_path)


def test_an_archive_that_is_no_regular_file_is_not_looked_at(tmp_path):
    os.mkfifo(tmp_path / "cifar-10-binary.tar.gz")
    with pytest.raises(FileNotFoundError, match="no cifar10 under"):
        load("cifar10", root=tmp_path)
    with pytest.raises(ValueError, match="is a pipe, not a regular file"):
        list(members(tmp_path / "cifar-10-binary.tar.gz", lambda name: True, remedy="r"))


def test_damaged_archives_are_read_or_refused(tmp_path):
    chance = random.Random(0)
    files = {f"a/{number}.png": RNG.bytes(300) for number in range(3)}
    write_tar(tmp_path / "packed.tar.gz", files)
    write_zip(tmp_path / "packed.zip", files, zipfile.ZIP_DEFLATED)
    packed = (tmp_path / "packed.tar.gz").read_bytes()
    zipped = (tmp_path / "packed.zip").read_bytes()
    for data in (packed, gzip.decompress(packed), zipped):
        for _ in range(200):
            damaged = bytearray(data)
            for _ in range(chance.choice((1, 3, 20))):
                damaged[chance.randrange(len(data))] = chance.randrange(256)
            try:
                list(members(Blob("a", bytes(damaged), ""), lambda name: True, remedy="r"))
            except ValueError as error:
                assert str(error).startswith("a ") and str(error).endswith(": r")
