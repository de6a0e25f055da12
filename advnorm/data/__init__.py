"""Data sets by name, their splits, and the random changes of training images."""

from advnorm.data import image_folders as _folders  # noqa: F401  (enters its names into DATA)
from advnorm.data import in_memory as _sets  # noqa: F401
from advnorm.data.augment import AUGMENTATIONS, crop, crop_flip, flip, mixup, smoothed
from advnorm.data.catalogue import DATA, load
from advnorm.data.corruptions import CORRUPTIONS, corrupt
from advnorm.data.in_memory import every_set
from advnorm.data.jitter import crop_flip_jitter
from advnorm.data.splits import Batch, DataSet, Moments, Split, Tensors
from advnorm.data.storage import default_root
from advnorm.data.streaming import Folder
from advnorm.data.subsets import resize, select, subset

__all__ = [
    "AUGMENTATIONS",
    "CORRUPTIONS",
    "DATA",
    "Batch",
    "DataSet",
    "Folder",
    "Moments",
    "Split",
    "Tensors",
    "corrupt",
    "crop",
    "crop_flip",
    "crop_flip_jitter",
    "default_root",
    "every_set",
    "flip",
    "load",
    "mixup",
    "resize",
    "select",
    "smoothed",
    "subset",
]
