"""Reading the published formats: what is written comes back, and what is bad is named."""

import gzip
import io
import struct
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from advnorm.data import DATA, load

RNG = np.random.default_rng(0)
CPU = torch.device("cpu")
PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"


def idx(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, *, zipped: bool) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "train-images-idx3-ubyte": RNG.integers(0, 256, (40, 28, 28)),
        "train-labels-idx1-ubyte": RNG.integers(0, 10, 40),
        "t10k-images-idx3-ubyte": RNG.integers(0, 256, (20, 28, 28)),
        "t10k-labels-idx1-ubyte": RNG.integers(0, 10, 20),
    }
    for name, array in arrays.items():
        content = idx(array)
        path = folder / (name + ".gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
    return arrays


def records(count: int, labels: int, high: int) -> np.ndarray:
    rows = RNG.integers(0, 256, (count, labels + 3072), dtype=np.uint8)
    rows[:, :labels] %= high
    return rows


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def whole(split):
    (batch,) = split.batches(torch.arange(len(split)), batch_size=10_000, device=CPU)
    return (batch.images * 255).round().byte().numpy(), batch.labels.numpy()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["mnist", "mnist/raw", "."])
def test_mnist_comes_back_as_written(tmp_path, zipped, place):
    arrays = write_mnist(tmp_path / place, zipped=zipped)
    data = load("mnist", root=tmp_path, validation=0)
    images, labels = whole(data.train)
    assert np.array_equal(images[:, 0], arrays["train-images-idx3-ubyte"])
    assert np.array_equal(labels, arrays["train-labels-idx1-ubyte"])
    images, labels = whole(data.test)
    assert np.array_equal(images[:, 0], arrays["t10k-images-idx3-ubyte"])
    assert data.shape == (1, 28, 28) and data.bounds == (0, 1) and len(data.classes) == 10
    assert load("mnist", root=tmp_path, size=56).shape == (1, 56, 56)


def test_fashion_mnist_has_its_own_names(tmp_path):
    write_mnist(tmp_path / "fashion_mnist", zipped=True)
    assert load("fashion_mnist", root=tmp_path).classes[9] == "ankle boot"


@pytest.mark.parametrize("archive", [True, False])
def test_cifar10_comes_back_as_written(tmp_path, archive):
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    rows = {name: records(4, 1, 10) for name in names}
    files = {f"cifar-10-batches-bin/{n}": r.tobytes() for n, r in rows.items()}
    files["cifar-10-batches-bin/readme.html"] = PAGE
    if archive:
        write_tar(tmp_path / "cifar10" / "cifar-10-binary.tar.gz", files)
    else:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    data = load("cifar10", root=tmp_path, validation=0)
    images, labels = whole(data.train)
    every = np.concatenate([rows[name] for name in names[:5]])
    assert np.array_equal(images.reshape(20, -1), every[:, 1:])
    assert np.array_equal(labels, every[:, 0])
    assert np.array_equal(whole(data.test)[1], rows["test_batch.bin"][:, 0])
    assert data.shape == (3, 32, 32)
    assert not list(tmp_path.rglob("*.bin")) or not archive, "nothing is unpacked"


def test_cifar100_has_the_fine_labels(tmp_path):
    train, test = records(6, 2, 100), records(3, 2, 100)
    train[:, 0] %= 20
    fine = "\n".join(f"class{i}" for i in range(100)).encode()
    files = {
        "cifar-100-binary/train.bin": train.tobytes(),
        "cifar-100-binary/test.bin": test.tobytes(),
        "cifar-100-binary/fine_label_names.txt": fine,
    }
    write_tar(tmp_path / "cifar-100-binary.tar.gz", files)
    data = load("cifar100", root=tmp_path, validation=0)
    assert np.array_equal(whole(data.train)[1], train[:, 1])
    assert np.array_equal(whole(data.test)[0].reshape(3, -1), test[:, 2:])
    assert data.classes[99] == "class99"


def test_svhn_calls_the_label_ten_zero(tmp_path):
    (tmp_path / "svhn").mkdir()
    pixels = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for split in ("train", "test"):
        content = {"X": pixels, "y": np.array([[10], [1], [9], [10]], dtype=np.uint8)}
        savemat(tmp_path / "svhn" / f"{split}_32x32.mat", content, do_compression=True)
    data = load("svhn", root=tmp_path, validation=0)
    images, labels = whole(data.train)
    assert labels.tolist() == [0, 1, 9, 0]
    assert np.array_equal(images[2, 1], pixels[:, :, 1, 2])


def test_sets_with_test_data_only_have_nothing_to_train_on(tmp_path):
    pixels = RNG.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    (tmp_path / "cifar10.1_v6_data.npy").write_bytes(npy(pixels))
    (tmp_path / "cifar10.1_v6_labels.npy").write_bytes(npy(np.arange(10, dtype=np.int32)))
    data = load("cifar10.1", root=tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (0, 0, 10)
    images, labels = whole(data.test)
    assert np.array_equal(images, pixels.transpose(0, 3, 1, 2)) and labels.tolist() == [
        *range(10)
    ]
    with pytest.raises(ValueError, match=r"cifar10\.1 has no training images"):
        data.moments()


@pytest.mark.parametrize("archive", [True, False])
def test_severities_of_cifar10_c_are_fifths_of_the_file(tmp_path, archive):
    pixels = RNG.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    files = {
        "CIFAR-10-C/fog.npy": npy(pixels),
        "CIFAR-10-C/labels.npy": npy(np.arange(20, dtype=np.uint8) % 4),
    }
    if archive:
        write_tar(tmp_path / "cifar10-c" / "CIFAR-10-C.tar", files, "w")
    else:
        (tmp_path / "CIFAR-10-C").mkdir()
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
    data = load("cifar10-c:fog:3", root=tmp_path)
    images, labels = whole(data.test)
    assert np.array_equal(images, pixels[8:12].transpose(0, 3, 1, 2))
    assert labels.tolist() == [0, 1, 2, 3] and data.test.samples.tolist() == [8, 9, 10, 11]
    assert data.name == "cifar10-c:fog:3" and len(data.train) == 0
    assert len(load("cifar10-c:fog", root=tmp_path).test) == 20
    with pytest.raises(ValueError, match="no severity '6'"):
        load("cifar10-c:fog:6", root=tmp_path)
    with pytest.raises(ValueError, match="did you mean 'frost'"):
        load("cifar10-c:forst", root=tmp_path)


def test_mnist_c_is_read_from_its_zip(tmp_path):
    pixels = RNG.integers(0, 256, (5, 28, 28, 1), dtype=np.uint8)
    (tmp_path / "mnist-c").mkdir()
    with zipfile.ZipFile(tmp_path / "mnist-c" / "mnist_c.zip", "w") as archive:
        for name in ("fog", "zigzag"):
            shift = 0 if name == "zigzag" else 1
            archive.writestr(
                f"mnist_c/{name}/test_images.npy", npy(pixels + np.uint8(shift))
            )
            archive.writestr(f"mnist_c/{name}/test_labels.npy", npy(np.arange(5)))
    data = load("mnist-c:zigzag", root=tmp_path)
    assert np.array_equal(whole(data.test)[0], pixels.transpose(0, 3, 1, 2))
    assert data.shape == (1, 28, 28)


@pytest.mark.parametrize("shape", [(12, 5, 4), (12, 5, 4, 1), (12, 5, 4, 3), (12, 3, 5, 4)])
def test_npz_with_two_splits(tmp_path, shape):
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    labels = np.arange(12) % 3
    path = tmp_path / "own.npz"
    np.savez(
        path, x_train=pixels, y_train=labels, x_test=pixels[:4], y_test=labels[:4, None]
    )
    data = load(f"npz:{path}", validation=0.25)
    assert (len(data.train), len(data.validation), len(data.test)) == (9, 3, 4)
    assert data.shape == ((3 if 3 in shape else 1), 5, 4) and data.classes == (
        "0",
        "1",
        "2",
    )
    first = pixels[0].transpose(2, 0, 1) if shape[-1] in (1, 3) else pixels[0]
    assert np.array_equal(whole(data.test)[0][0], first.reshape(data.shape))


def test_npz_with_one_part_is_split_the_same_way_for_every_seed(tmp_path):
    path = tmp_path / "own.npz"
    names = np.array(["cat", "dog"])
    np.savez(path, images=RNG.random((50, 6)), labels=np.arange(50) % 2, classes=names)
    one, two = (load(f"npz:{path}", seed=seed) for seed in (0, 1))
    assert (len(one.train), len(one.validation), len(one.test)) == (36, 4, 10)
    assert torch.equal(one.test.samples, two.test.samples)
    assert not torch.equal(one.validation.samples, two.validation.samples)
    assert one.classes == ("cat", "dog") and one.shape == (6,)


def bad_npz(tmp_path, **arrays):
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
        bad_npz(tmp_path, **arrays)


@pytest.mark.parametrize("empty", ["train", "test"])
def test_an_npz_with_an_empty_split_is_refused(tmp_path, empty):
    arrays = {}
    for part in ("train", "test"):
        count = 0 if part == empty else 4
        arrays |= {f"x_{part}": np.zeros((count, 3)), f"y_{part}": np.arange(count) % 2}
    with pytest.raises(ValueError, match=r"a split without any image \(shape \(0, 3\)"):
        bad_npz(tmp_path, **arrays)


def test_an_npz_with_one_class_or_too_few_images_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has 1 class .*give at least 2 classes"):
        bad_npz(tmp_path, images=np.zeros((9, 3)), labels=np.zeros(9, int))
    with pytest.raises(ValueError, match="2 images are too few to take 20% for the test"):
        bad_npz(tmp_path, images=np.zeros((2, 3)), labels=np.arange(2))


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
    path.write_bytes(npy(np.zeros(3)))
    with pytest.raises(ValueError, match="is no npz file"):
        load(f"npz:{path}")
    with pytest.raises(ValueError, match="npz:PATH"):
        load("npz")


IMAGES = "train-images-idx3-ubyte"


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
        (lambda b: idx(np.zeros((39, 28, 28))), "39 images but .*labels.* has 40 labels"),
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
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.full(20, 10)))
    with pytest.raises(
        ValueError, match=r"t10k-labels.* has the label 10, outside of 0 to 9"
    ):
        load("mnist", root=tmp_path)


def cifar_files() -> dict[str, bytes]:
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    return {f"cifar-10-batches-bin/{name}": records(2, 1, 10).tobytes() for name in names}


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
    write_tar(path, {**cifar_files(), **extra})
    with pytest.raises(ValueError, match=f"cifar-10-binary.tar.gz.*{why}"):
        load("cifar10", root=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_an_archive_cut_short_or_incomplete_or_a_page(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    files = cifar_files()
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
    secret = tmp_path / "secret"
    secret.write_bytes(records(2, 1, 10).tobytes())
    path = tmp_path / "cifar-10-binary.tar.gz"
    files = cifar_files()
    del files["cifar-10-batches-bin/test_batch.bin"]
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "data_batch_1.bin"
        archive.addfile(link)
    with pytest.raises(ValueError, match=r"no member test_batch\.bin"):
        load("cifar10", root=tmp_path)


def test_a_bad_zip_member_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "mnist_c.zip", "w") as archive:
        archive.writestr(
            "mnist_c/fog/test_images.npy", npy(np.zeros((1, 28, 28, 1), np.uint8))
        )
        archive.writestr("mnist_c/fog/test_labels.npy", npy(np.zeros(1, int)))
        archive.writestr("../evil", b"x")
    with pytest.raises(ValueError, match=r"mnist_c.zip has a member outside .*\.\./evil"):
        load("mnist-c:fog", root=tmp_path)


@pytest.mark.parametrize("keep", [0, 100, 700, -20])
def test_a_matlab_file_cut_short_is_named(tmp_path, keep):
    pixels = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for split in ("train", "test"):
        content = {"X": pixels, "y": np.ones((4, 1), np.uint8)}
        savemat(tmp_path / f"{split}_32x32.mat", content, do_compression=True)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"train_32x32\.mat .*remove it"):
        load("svhn", root=tmp_path)


def test_a_matlab_file_without_its_arrays_is_named(tmp_path):
    for split in ("train", "test"):
        savemat(tmp_path / f"{split}_32x32.mat", {"y": np.ones((4, 1), np.uint8)})
    with pytest.raises(ValueError, match=r"train_32x32\.mat has no array 'X'"):
        load("svhn", root=tmp_path)
    for split in ("train", "test"):
        savemat(tmp_path / f"{split}_32x32.mat", {"X": np.zeros(3), "y": np.ones(4)})
    with pytest.raises(ValueError, match="has X of float64"):
        load("svhn", root=tmp_path)


@pytest.mark.parametrize("change", [lambda b: b[:-7], lambda b: b"", lambda b: PAGE])
def test_a_bad_npy_is_named(tmp_path, change):
    labels = tmp_path / "cifar10.1_v6_labels.npy"
    (tmp_path / "cifar10.1_v6_data.npy").write_bytes(
        npy(np.zeros((2, 32, 32, 3), np.uint8))
    )
    labels.write_bytes(change(npy(np.zeros(2, int))))
    with pytest.raises(ValueError, match=r"v6_labels\.npy is (cut short|a web page)"):
        load("cifar10.1", root=tmp_path)


def test_a_pickle_in_an_npy_is_not_run(tmp_path):
    np.save(tmp_path / "cifar10.1_v6_data.npy", np.array([object()]), allow_pickle=True)
    (tmp_path / "cifar10.1_v6_labels.npy").write_bytes(npy(np.zeros(2, int)))
    with pytest.raises(
        ValueError, match=r"v6_data\.npy is cut short, has Python objects or is no npy file"
    ):
        load("cifar10.1", root=tmp_path)


READ = ["mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "cifar10.1"]


@pytest.mark.parametrize(
    "name",
    [*READ, "cifar10-c:fog:1", "mnist-c:fog", "tiny-imagenet", "imagenette", "imagenet"],
)
def test_a_set_that_is_not_there_says_what_to_put_where(tmp_path, name, monkeypatch):
    monkeypatch.setenv("ADVNORM_DATA", str(tmp_path / "here"))
    kind = name.partition(":")[0]
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    message = str(caught.value)
    assert f"into {tmp_path / 'here' / kind}" in message
    assert (f"advnorm data get {kind}" in message) == (kind != "imagenet")


def test_the_names_are_these():
    corrupted = {"cifar10-c", "mnist-c"}
    files = {"tiny-imagenet", "imagenette", "imagenet", "folder", "npz"}
    assert set(DATA) == {*READ, *corrupted, *files, "digits", "gaussians", "spheres"}
    assert all(DATA.summary(name).endswith(".") for name in DATA)


def test_one_flipped_bit_of_an_archive_is_never_read_in_silence(tmp_path):
    """The checksum of gzip stands behind the last member."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    folder = "cifar-10-batches-bin"
    files = {f"{folder}/{name}": records(4, 1, 10).tobytes() for name in names}
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    write_tar(path, files)
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


def test_files_of_the_namesake_are_refused(tmp_path, monkeypatch):
    """MNIST and Fashion-MNIST call their files alike, and a folder of them may be --data."""
    arrays = write_mnist(tmp_path, zipped=True)
    assert len(load("fashion_mnist", root=tmp_path).test) == 20
    labels = arrays["train-labels-idx1-ubyte"].astype(np.uint8).tobytes()
    known = {sha256(labels).hexdigest(): "mnist"}
    monkeypatch.setattr("advnorm.data.in_memory._LABELS", known)
    assert len(load("mnist", root=tmp_path).test) == 20
    with pytest.raises(ValueError, match=r"fashion_mnist.* are those of mnist: put them"):
        load("fashion_mnist", root=tmp_path)


@pytest.mark.parametrize("splits", [1, 2])
def test_arrays_sorted_by_class_are_shown_mixed(tmp_path, splits):
    """Whoever takes the first few would see the first class alone."""
    labels = np.arange(400) // 40
    images = np.broadcast_to(labels[:, None, None], (400, 4, 4)).astype(np.uint8)
    arrays = {"images": images, "labels": labels}
    if splits == 2:
        arrays = {
            f"{x}_{part}": v
            for part in ("train", "test")
            for x, v in (("x", images), ("y", labels))
        }
    np.savez(tmp_path / "sorted.npz", **arrays)
    data = load(f"npz:{tmp_path / 'sorted.npz'}")
    for split in (data.train, data.validation, data.test):
        assert len(split.labels[:30].unique()) > 5
        assert torch.equal(split.images[:, 0, 0, 0].long(), split.labels)
        assert torch.equal(split.samples // 40, split.labels)
    again = load(f"npz:{tmp_path / 'sorted.npz'}")
    assert again.digest() == data.digest()
