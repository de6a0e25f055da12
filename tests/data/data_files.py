"""Small random images, and files of data sets as they are published."""

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from advnorm.draws import Draws

RNG = np.random.default_rng(0)
CPU = torch.device("cpu")
PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"
CIFAR10_FILES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


def whole(split, batch_size=10_000, order=None, epoch=None):
    """Return the images, labels and sample numbers of a split."""
    order = torch.arange(len(split)) if order is None else order
    batches = list(split.batches(order, batch_size=batch_size, device=CPU, epoch=epoch))
    return tuple(torch.cat(parts) for parts in zip(*batches, strict=True))


def pixels_and_labels(split) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of a split as uint8, and its labels."""
    images, labels, _ = whole(split)
    return (images * 255).round().byte().numpy(), labels.numpy()


def write_files(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def add_to_tar(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            add_to_tar(archive, name, content)


def write_zip(
    path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_STORED
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def idx_bytes(array: np.ndarray) -> bytes:
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
        content = idx_bytes(array)
        path = folder / (name + ".gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
    return arrays


def cifar_records(count: int, labels: int, classes: int) -> np.ndarray:
    rows = RNG.integers(0, 256, (count, labels + 3072), dtype=np.uint8)
    rows[:, :labels] %= classes
    return rows


def cifar10_files(count: int = 2) -> dict[str, bytes]:
    return {
        f"cifar-10-batches-bin/{name}": cifar_records(count, 1, 10).tobytes()
        for name in CIFAR10_FILES
    }


def random_pixels(height: int, width: int, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels == 3 else (height, width)
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def save_image(path: Path, array: np.ndarray) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return array


def image_bytes(array: np.ndarray, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind, **options)
    return buffer.getvalue()


def write_image_folder(
    root: Path, parts=("train", "test"), side=(8, 8), count: int = 6
) -> None:
    for part in parts:
        for label in ("cat", "dog", "emu"):
            for i in range(count):
                save_image(root / part / label / f"{i}.png", random_pixels(*side))


def smooth_images(count, channels, height, width, dtype=torch.float32):
    """Random images as smooth as photographs: a 5x5 lattice, bicubic between."""
    lattice = Draws.of(7, torch.arange(count)).normal(channels, 5, 5)
    size = (height, width)
    image = F.interpolate(lattice, size=size, mode="bicubic", align_corners=True)
    return torch.sigmoid(2 * image).to(dtype)


def small_folder(root: Path) -> Path:
    """Write three images a class, and return the folder of the first class."""
    write_image_folder(root, count=3)
    return root / "train" / "cat"


def tiny_imagenet_files() -> dict[str, bytes]:
    files = {}
    for label in ("n02", "n01"):
        for i in range(2):
            files[f"train/{label}/images/{label}_{i}.JPEG"] = image_bytes(
                random_pixels(64, 64)
            )
        files[f"train/{label}/{label}_boxes.txt"] = b"0"
    for i in range(3):
        files[f"val/images/val_{i}.JPEG"] = image_bytes(random_pixels(64, 64))
    rows = "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\nval_2.JPEG\tn01\t0\t0\t9\t9\n"
    files["val/val_annotations.txt"] = rows.encode()
    files["test/images/test_0.JPEG"] = image_bytes(random_pixels(64, 64))
    return {f"tiny-imagenet-200/{name}": content for name, content in files.items()}
