"""The published data sets that fit in memory, the digits and the toy problems.

Each docstring gives the layout of the published files. Archives are read as they are, and
never unpacked.
"""

import re
from hashlib import sha256
from typing import cast

import numpy as np
import torch

from advnorm.data import formats, toy
from advnorm.data.blob import read
from advnorm.data.registry import (
    DATA,
    DataRequest,
    image_set,
    image_test_set,
    split_off_test,
)
from advnorm.data.splits import DataSet, TensorSplit
from advnorm.data.subsets import balanced_positions
from advnorm.registry import unknown

_DIGITS = tuple("0123456789")
_FASHION = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
_LABELS = {
    "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13": "mnist",
    "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7": "fashion_mnist",
}
"""SHA-256 of the 60,000 training labels, a byte each."""
_CIFAR10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR10_C = (
    *("brightness", "contrast", "defocus_blur", "elastic_transform", "fog", "frost"),
    *("gaussian_blur", "gaussian_noise", "glass_blur", "impulse_noise", "jpeg_compression"),
    *("motion_blur", "pixelate", "saturate", "shot_noise", "snow", "spatter"),
    *("speckle_noise", "zoom_blur"),
)
MNIST_C = (
    *("brightness", "canny_edges", "dotted_line", "fog", "glass_blur", "identity"),
    *("impulse_noise", "motion_blur", "rotate", "scale", "shear", "shot_noise", "spatter"),
    *("stripe", "translate", "zigzag"),
)
_SEVERITIES = 5
_DIGITS_TEST = 360


@DATA.register("digits")
def digits(request: DataRequest) -> DataSet:
    """Handwritten digits, 8x8 (scikit-learn): 1,437 training and 360 test images.

    Values 0 to 16 become 0 to 255, rounded. The test images, 36 a class, are the same for
    any seed.
    """
    from sklearn.datasets import load_digits

    request.refuse_argument()
    raw = load_digits()
    pixels = np.rint(raw.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = torch.from_numpy(raw.target.astype(np.int64))
    images = TensorSplit(torch.from_numpy(pixels), labels)
    test = balanced_positions(images, _DIGITS_TEST, classes=10, seed=0)
    in_train = torch.ones(len(images), dtype=torch.bool).index_fill_(0, test, False)
    train = in_train.nonzero().flatten()
    return image_set(_DIGITS, images.take(train), images.take(test))


@DATA.register("mnist")
def mnist(request: DataRequest) -> DataSet:
    """MNIST, 28x28 grey: ``{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]``."""
    return _idx(request, _DIGITS)


@DATA.register("fashion_mnist")
def fashion_mnist(request: DataRequest) -> DataSet:
    """Fashion-MNIST, 28x28 grey: files named as those of MNIST."""
    return _idx(request, _FASHION)


@DATA.register("cifar10")
def cifar10(request: DataRequest) -> DataSet:
    """CIFAR-10, 32x32: ``cifar-10-binary.tar.gz`` or its six ``.bin`` files."""
    request.refuse_argument()
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    blobs = request.find(
        names, archive="cifar-10-binary.tar.gz", folder="cifar-10-batches-bin"
    )
    train = formats.cifar(blobs[:5], label_bytes=1, classes=10)
    return image_set(_CIFAR10, train, formats.cifar(blobs[5:], label_bytes=1, classes=10))


@DATA.register("cifar100")
def cifar100(request: DataRequest) -> DataSet:
    """CIFAR-100, 32x32, fine labels: ``cifar-100-binary.tar.gz`` or its files."""
    request.refuse_argument()
    names = ["train.bin", "test.bin", "fine_label_names.txt"]
    train, test, fine = request.find(
        names, archive="cifar-100-binary.tar.gz", folder="cifar-100-binary"
    )
    classes = tuple(fine.data.decode("ascii", "replace").split())
    if len(classes) != 100:
        raise fine.error(f"names {len(classes)} classes, not 100")
    return image_set(
        classes,
        formats.cifar([train], label_bytes=2, classes=100),
        formats.cifar([test], label_bytes=2, classes=100),
    )


@DATA.register("svhn")
def svhn(request: DataRequest) -> DataSet:
    """SVHN, house numbers, 32x32: ``train_32x32.mat`` and ``test_32x32.mat``."""
    request.refuse_argument()
    train, test = request.find(["train_32x32.mat", "test_32x32.mat"])
    return image_set(_DIGITS, formats.svhn(train), formats.svhn(test))


@DATA.register("cifar10.1")
def cifar10_1(request: DataRequest) -> DataSet:
    """CIFAR-10.1 v6, 2,000 test images only: ``cifar10.1_v6_{data,labels}.npy``."""
    request.refuse_argument()
    names = ["cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"]
    images, labels = request.find(names)
    return image_test_set(_CIFAR10, formats.npy_pair(images, labels, classes=10))


@DATA.register("cifar10-c")
def cifar10_c(request: DataRequest) -> DataSet:
    """Corrupted CIFAR-10, test only: ``cifar10-c:NAME:SEVERITY``, or all five severities.

    ``CIFAR-10-C.tar`` holds ``CIFAR-10-C/NAME.npy``, uint8 ``(50000, 32, 32, 3)``: the
    10,000 test images at severity 1, then 2, up to 5; and ``labels.npy`` for all 50,000.
    """
    corruption, _, severity = request.argument.partition(":")
    _check_corruption(request.kind, corruption, CIFAR10_C)
    names = [f"{corruption}.npy", "labels.npy"]
    images, labels = request.find(names, archive="CIFAR-10-C.tar", folder="CIFAR-10-C")
    test = formats.npy_pair(images, labels, classes=10)
    if len(test) % _SEVERITIES:
        raise images.error(f"has {len(test)} images, no multiple of five severities")
    return image_test_set(_CIFAR10, test.take(_severity_positions(severity, len(test))))


@DATA.register("mnist-c")
def mnist_c(request: DataRequest) -> DataSet:
    """Corrupted MNIST, test only: ``mnist-c:NAME``.

    ``mnist_c.zip`` holds ``mnist_c/NAME/test_images.npy``, uint8 ``(10000, 28, 28, 1)``,
    and ``mnist_c/NAME/test_labels.npy`` (and training files, which are not used).
    """
    _check_corruption(request.kind, request.argument, MNIST_C)
    names = [f"{request.argument}/test_images.npy", f"{request.argument}/test_labels.npy"]
    images, labels = request.find(names, archive="mnist_c.zip", folder="mnist_c")
    return image_test_set(_DIGITS, formats.npy_pair(images, labels, classes=10))


def expand_name(name: str) -> list[str]:
    """Return the sets that a name means: ``cifar10-c`` and ``mnist-c`` are all of theirs.

    >>> expand_name("cifar10-c")[:2], expand_name("mnist-c")[-1]
    (['cifar10-c:brightness:1', 'cifar10-c:brightness:2'], 'mnist-c:zigzag')
    >>> expand_name("mnist-c:fog")
    ['mnist-c:fog']
    """
    if name == "cifar10-c":
        levels = range(1, _SEVERITIES + 1)
        return [f"{name}:{kind}:{level}" for kind in CIFAR10_C for level in levels]
    return [f"{name}:{kind}" for kind in MNIST_C] if name == "mnist-c" else [name]


def corruption_of(name: str) -> tuple[str | None, int | None]:
    """Return the corruption that a data set has, by its name, and its severity.

    >>> corruption_of("cifar10-c:fog:3"), corruption_of("mnist-c:fog")
    (('fog', 3), ('fog', None))
    >>> corruption_of("mnist")
    (None, None)
    """
    match = re.match(r"(?:cifar10-c|mnist-c):([a-z_]+)(?::([1-5]))?", name)
    return (match[1], int(match[2]) if match[2] else None) if match else (None, None)


@DATA.register("npz")
def npz(request: DataRequest) -> DataSet:
    """Your own arrays: ``npz:PATH`` with x_train, y_train, x_test, y_test.

    Or with ``images`` and ``labels`` alone, of which 20% become the test split. Images are
    uint8 or floats in [0, 1], of shape ``(n, H, W)``, ``(n, H, W, C)``, ``(n, C, H, W)`` or
    ``(n, features)``. An array ``classes`` of strings names the classes.
    """
    path = request.path()
    if not path.is_file():
        raise FileNotFoundError(
            f"no file {path}: give the path of an npz file after 'npz:'"
        )
    blob = read(path, "save it again with numpy.savez")
    arrays = formats.npz(blob)
    classes = formats.npz_classes(blob, arrays)
    parts = [
        formats.npz_split(blob, arrays[x], arrays[y], classes=len(classes))
        for x, y in formats.npz_names(blob, arrays)
    ]
    if len(parts) == 1:
        parts = [cast(TensorSplit, part) for part in split_off_test(parts[0])]
    return image_set(classes, parts[0], parts[1])


@DATA.register("gaussians")
def gaussians(request: DataRequest) -> DataSet:
    """Two Gaussians in the plane, one class each (galloway2019, Figure 1)."""
    _check_points(request)
    return toy.gaussians(seed=request.seed, validation=request.validation)


@DATA.register("spheres")
def spheres(request: DataRequest) -> DataSet:
    """Two concentric circles, one class each (galloway2019, appendix H)."""
    _check_points(request)
    return toy.spheres(seed=request.seed, validation=request.validation)


def _idx(request: DataRequest, classes: tuple[str, ...]) -> DataSet:
    request.refuse_argument()
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    names = [f"{split}-{kind}" for split in ("train", "t10k") for kind in kinds]
    blobs = request.find(names)
    train, test = (
        formats.paired(
            images,
            formats.idx(images, dimensions=3)[:, None],
            labels,
            formats.idx(labels, dimensions=1),
            classes=len(classes),
        )
        for images, labels in (blobs[:2], blobs[2:])
    )
    _check_labels(request, train)
    return image_set(classes, train, test)


def _check_labels(request: DataRequest, train: TensorSplit) -> None:
    """Refuse MNIST for Fashion-MNIST and vice versa: their files have the same names."""
    labels = train.labels.to(torch.uint8).numpy().tobytes()
    kind = _LABELS.get(sha256(labels).hexdigest(), request.kind)
    if kind != request.kind:
        raise ValueError(
            f"the files for {request.kind} under {request.root} are those of {kind}: put "
            f"them into {request.root / kind}, and those of {request.kind} into "
            f"{request.root / request.kind}"
        )


def _check_corruption(kind: str, corruption: str, names: tuple[str, ...]) -> None:
    if corruption not in names:
        raise unknown(f"{kind} corruption", corruption, list(names))


def _severity_positions(text: str, count: int) -> torch.Tensor:
    if not text:
        return torch.arange(count)
    if text not in tuple("12345"):
        raise ValueError(f"no severity {text!r}: give 1 to 5, as in cifar10-c:fog:3")
    per_severity = count // _SEVERITIES
    return torch.arange(per_severity) + (int(text) - 1) * per_severity


def _check_points(request: DataRequest) -> None:
    request.refuse_argument()
    if request.size is not None:
        raise ValueError(f"{request.kind} are points, not images: leave out the size")
