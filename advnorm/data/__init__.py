"""Data sets by name, their splits, augmentation and corruptions."""

from advnorm.data import image_folders as _folders  # noqa: F401  (enters its names into DATA)
from advnorm.data import in_memory as _sets  # noqa: F401
from advnorm.data.augment import (
    AUGMENTATIONS,
    crop,
    crop_flip,
    crop_flip_jitter,
    flip,
    mixup,
    smooth_labels,
)
from advnorm.data.corruptions import CORRUPTIONS, corrupt
from advnorm.data.in_memory import corruption_of, expand_name
from advnorm.data.locate import default_root
from advnorm.data.registry import DATA, load
from advnorm.data.splits import Batch, DataSet, PixelMoments, Split, TensorSplit
from advnorm.data.streaming import StreamedSplit
from advnorm.data.subsets import resize, select, subset
from advnorm.data.user_data import as_data_set, check_digest, digest_of, use_data

__all__ = [
    "AUGMENTATIONS",
    "CORRUPTIONS",
    "DATA",
    "Batch",
    "DataSet",
    "PixelMoments",
    "Split",
    "StreamedSplit",
    "TensorSplit",
    "as_data_set",
    "check_digest",
    "corrupt",
    "corruption_of",
    "crop",
    "crop_flip",
    "crop_flip_jitter",
    "default_root",
    "digest_of",
    "expand_name",
    "flip",
    "load",
    "mixup",
    "resize",
    "select",
    "smooth_labels",
    "subset",
    "use_data",
]
