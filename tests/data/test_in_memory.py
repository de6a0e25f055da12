"""Published data sets in memory: what is written to files is read back."""

from hashlib import sha256

import numpy as np
import pytest
import torch
from data_files import (
    CIFAR10_FILES,
    PAGE,
    RNG,
    cifar_records,
    npy_bytes,
    pixels_and_labels,
    write_files,
    write_mnist,
    write_tar,
    write_zip,
)
from scipy.io import savemat

from advnorm.data import DATA, load

PUBLISHED = ["mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "cifar10.1"]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["mnist", "mnist/raw", "."])
def test_mnist_comes_back_as_written(tmp_path, zipped, place):
    arrays = write_mnist(tmp_path / place, zipped=zipped)
    data = load("mnist", root=tmp_path, validation=0)
    images, labels = pixels_and_labels(data.train)
    assert np.array_equal(images[:, 0], arrays["train-images-idx3-ubyte"])
    assert np.array_equal(labels, arrays["train-labels-idx1-ubyte"])
    images, labels = pixels_and_labels(data.test)
    assert np.array_equal(images[:, 0], arrays["t10k-images-idx3-ubyte"])
    assert data.shape == (1, 28, 28) and data.bounds == (0, 1) and len(data.classes) == 10
    assert load("mnist", root=tmp_path, size=56).shape == (1, 56, 56)


def test_fashion_mnist_has_its_own_names(tmp_path):
    write_mnist(tmp_path / "fashion_mnist", zipped=True)
    assert load("fashion_mnist", root=tmp_path).classes[9] == "ankle boot"


@pytest.mark.parametrize("archive", [True, False])
def test_cifar10_comes_back_as_written(tmp_path, archive):
    rows = {name: cifar_records(4, 1, 10) for name in CIFAR10_FILES}
    files = {f"cifar-10-batches-bin/{n}": r.tobytes() for n, r in rows.items()}
    files["cifar-10-batches-bin/readme.html"] = PAGE
    if archive:
        write_tar(tmp_path / "cifar10" / "cifar-10-binary.tar.gz", files)
    else:
        write_files(tmp_path, files)
    data = load("cifar10", root=tmp_path, validation=0)
    images, labels = pixels_and_labels(data.train)
    train = np.concatenate([rows[name] for name in CIFAR10_FILES[:5]])
    assert np.array_equal(images.reshape(20, -1), train[:, 1:])
    assert np.array_equal(labels, train[:, 0])
    assert np.array_equal(pixels_and_labels(data.test)[1], rows["test_batch.bin"][:, 0])
    assert data.shape == (3, 32, 32)
    assert not list(tmp_path.rglob("*.bin")) or not archive, "nothing is unpacked"


def test_cifar100_has_the_fine_labels(tmp_path):
    train, test = cifar_records(6, 2, 100), cifar_records(3, 2, 100)
    train[:, 0] %= 20
    fine = "\n".join(f"class{i}" for i in range(100)).encode()
    files = {
        "cifar-100-binary/train.bin": train.tobytes(),
        "cifar-100-binary/test.bin": test.tobytes(),
        "cifar-100-binary/fine_label_names.txt": fine,
    }
    write_tar(tmp_path / "cifar-100-binary.tar.gz", files)
    data = load("cifar100", root=tmp_path, validation=0)
    assert np.array_equal(pixels_and_labels(data.train)[1], train[:, 1])
    assert np.array_equal(pixels_and_labels(data.test)[0].reshape(3, -1), test[:, 2:])
    assert data.classes[99] == "class99"


def test_svhn_calls_the_label_ten_zero(tmp_path):
    (tmp_path / "svhn").mkdir()
    pixels = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for split in ("train", "test"):
        content = {"X": pixels, "y": np.array([[10], [1], [9], [10]], dtype=np.uint8)}
        savemat(tmp_path / "svhn" / f"{split}_32x32.mat", content, do_compression=True)
    data = load("svhn", root=tmp_path, validation=0)
    images, labels = pixels_and_labels(data.train)
    assert labels.tolist() == [0, 1, 9, 0]
    assert np.array_equal(images[2, 1], pixels[:, :, 1, 2])


def test_sets_with_test_data_only_have_nothing_to_train_on(tmp_path):
    pixels = RNG.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    (tmp_path / "cifar10.1_v6_data.npy").write_bytes(npy_bytes(pixels))
    (tmp_path / "cifar10.1_v6_labels.npy").write_bytes(
        npy_bytes(np.arange(10, dtype=np.int32))
    )
    data = load("cifar10.1", root=tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (0, 0, 10)
    images, labels = pixels_and_labels(data.test)
    assert np.array_equal(images, pixels.transpose(0, 3, 1, 2)) and labels.tolist() == [
        *range(10)
    ]
    with pytest.raises(ValueError, match=r"cifar10\.1 has no training images"):
        data.moments()


@pytest.mark.parametrize("archive", [True, False])
def test_severities_of_cifar10_c_are_fifths_of_the_file(tmp_path, archive):
    pixels = RNG.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    files = {
        "CIFAR-10-C/fog.npy": npy_bytes(pixels),
        "CIFAR-10-C/labels.npy": npy_bytes(np.arange(20, dtype=np.uint8) % 4),
    }
    if archive:
        write_tar(tmp_path / "cifar10-c" / "CIFAR-10-C.tar", files, "w")
    else:
        write_files(tmp_path, files)
    data = load("cifar10-c:fog:3", root=tmp_path)
    images, labels = pixels_and_labels(data.test)
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
    files = {}
    for name, shift in (("fog", 1), ("zigzag", 0)):
        images = npy_bytes(pixels + np.uint8(shift))
        files[f"mnist_c/{name}/test_images.npy"] = images
        files[f"mnist_c/{name}/test_labels.npy"] = npy_bytes(np.arange(5))
    write_zip(tmp_path / "mnist-c" / "mnist_c.zip", files)
    data = load("mnist-c:zigzag", root=tmp_path)
    assert np.array_equal(pixels_and_labels(data.test)[0], pixels.transpose(0, 3, 1, 2))
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
    assert np.array_equal(pixels_and_labels(data.test)[0][0], first.reshape(data.shape))


def test_npz_with_one_part_is_split_the_same_way_for_every_seed(tmp_path):
    path = tmp_path / "own.npz"
    names = np.array(["cat", "dog"])
    np.savez(path, images=RNG.random((50, 6)), labels=np.arange(50) % 2, classes=names)
    data, other = (load(f"npz:{path}", seed=seed) for seed in (0, 1))
    assert (len(data.train), len(data.validation), len(data.test)) == (36, 4, 10)
    assert torch.equal(data.test.samples, other.test.samples)
    assert not torch.equal(data.validation.samples, other.validation.samples)
    assert data.classes == ("cat", "dog") and data.shape == (6,)


@pytest.mark.parametrize("splits", [1, 2])
def test_arrays_sorted_by_class_are_shuffled(tmp_path, splits):
    """Else the first samples would all be of one class."""
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


def test_mnist_in_the_place_of_fashion_mnist_is_refused(tmp_path, monkeypatch):
    """Their files have the same names."""
    arrays = write_mnist(tmp_path, zipped=True)
    assert len(load("fashion_mnist", root=tmp_path).test) == 20
    labels = arrays["train-labels-idx1-ubyte"].astype(np.uint8).tobytes()
    digests = {sha256(labels).hexdigest(): "mnist"}
    monkeypatch.setattr("advnorm.data.in_memory._LABELS", digests)
    assert len(load("mnist", root=tmp_path).test) == 20
    with pytest.raises(ValueError, match=r"fashion_mnist.* are those of mnist: put them"):
        load("fashion_mnist", root=tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *PUBLISHED,
        "cifar10-c:fog:1",
        "mnist-c:fog",
        "tiny-imagenet",
        "imagenette",
        "imagenet",
    ],
)
def test_a_set_that_is_not_there_says_what_to_put_where(tmp_path, name, monkeypatch):
    monkeypatch.setenv("ADVNORM_DATA", str(tmp_path / "here"))
    kind = name.partition(":")[0]
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    message = str(caught.value)
    assert f"into {tmp_path / 'here' / kind}" in message
    assert (f"advnorm data get {kind}" in message) == (kind != "imagenet")


def test_the_names_of_the_data_sets():
    corrupted = {"cifar10-c", "mnist-c"}
    files = {"tiny-imagenet", "imagenette", "imagenet", "folder", "npz", "python"}
    assert set(DATA) == {*PUBLISHED, *corrupted, *files, "digits", "gaussians", "spheres"}
    assert all(DATA.summary(name).endswith(".") for name in DATA)
