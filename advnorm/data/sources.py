"""Where the data sets are published: addresses, sizes in bytes and digests.

SHA-256 where one is published with the size, else MD5. MNIST comes from the mirror of the
Common Visual Data Foundation, because the original page is not reliable. ``None`` is an
unknown size.
"""

from collections.abc import Mapping
from typing import NamedTuple

_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"
_CIFAR10_1 = "https://raw.githubusercontent.com/modestyachts/CIFAR-10.1/master/datasets/"


class Source(NamedTuple):
    """One file of a data set."""

    url: str
    size: int | None
    digest: str
    """``sha256:`` or ``md5:`` and the hexadecimal digits."""

    @property
    def file(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


SOURCES: Mapping[str, tuple[Source, ...]] = {
    "mnist": (
        Source(
            _MNIST + "train-images-idx3-ubyte.gz",
            9_912_422,
            "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        Source(
            _MNIST + "train-labels-idx1-ubyte.gz",
            28_881,
            "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        Source(
            _MNIST + "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        Source(
            _MNIST + "t10k-labels-idx1-ubyte.gz",
            4_542,
            "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion_mnist": (
        Source(
            _FASHION + "train-images-idx3-ubyte.gz",
            26_421_880,
            "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        Source(
            _FASHION + "train-labels-idx1-ubyte.gz",
            29_515,
            "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        Source(
            _FASHION + "t10k-images-idx3-ubyte.gz",
            4_422_102,
            "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        Source(
            _FASHION + "t10k-labels-idx1-ubyte.gz",
            5_148,
            "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "cifar10": (
        Source(
            _TORONTO + "cifar-10-binary.tar.gz",
            170_052_171,
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    "cifar100": (
        Source(
            _TORONTO + "cifar-100-binary.tar.gz",
            168_513_733,
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
    "svhn": (
        Source(
            _SVHN + "train_32x32.mat",
            182_040_794,
            "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        Source(
            _SVHN + "test_32x32.mat",
            64_275_384,
            "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    "cifar10.1": (
        Source(
            _CIFAR10_1 + "cifar10.1_v6_data.npy",
            6_144_128,
            "sha256:2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6",
        ),
        Source(
            _CIFAR10_1 + "cifar10.1_v6_labels.npy",
            8_128,
            "sha256:ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448",
        ),
    ),
    "cifar10-c": (
        Source(
            "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            2_918_471_680,
            "sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
        ),
    ),
    "mnist-c": (
        Source(
            "https://zenodo.org/records/3239543/files/mnist_c.zip",
            246_661_575,
            "sha256:af9ee8c6a815870c7fdde5af84c7bf8db0bcfa1f41056db83871037fba70e493",
        ),
    ),
    "tiny-imagenet": (
        Source(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            248_100_043,
            "md5:90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
    "imagenette": (
        Source(
            "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz",
            99_003_388,
            "sha256:64d0c4859f35a461889e0147755a999a48b49bf38a7e0f9bd27003f10db02fe5",
        ),
    ),
}

NOT_DOWNLOADABLE: Mapping[str, str] = {
    "imagenet": "ImageNet needs an account: download it from image-net.org and put its "
    "class folders into train/ and val/ under the data folder's imagenet/",
    "folder": "folder:PATH is a folder of your own: there is nothing to download",
    "npz": "npz:PATH is a file of your own: there is nothing to download",
    "python": "python is data of your own, passed in Python: there is nothing to download",
}
