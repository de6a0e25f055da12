"""Images and labels out of tensors, arrays, lists, data sets and loaders."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from advnorm.labelled_data import read_samples

IMAGES = torch.rand(7, 1, 2, 2, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(7)
DATA = TensorDataset(IMAGES, LABELS)


class Endless(Dataset):
    """A data set that never raises IndexError, as those that compute their samples."""

    def __len__(self):
        return 7

    def __getitem__(self, number):
        return IMAGES[number % 7], int(LABELS[number % 7])


class Stream(IterableDataset):
    def __iter__(self):
        return ((image.numpy(), np.int64(label)) for image, label in DATA)


def as_dicts(names):
    return [dict(zip(names, pair, strict=True)) for pair in DATA]


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (IMAGES, LABELS),
        (IMAGES.numpy(), LABELS.tolist()),
        (IMAGES.tolist(), LABELS.numpy()),
        (list(IMAGES), list(LABELS)),
        (list(IMAGES.numpy()), tuple(LABELS.tolist())),
        (DATA, None),
        (Endless(), None),
        (Stream(), None),
        (list(DATA), None),
        (as_dicts(["image", "label"]), None),
        (as_dicts(["pixel_values", "labels"]), None),
        (DataLoader(DATA, batch_size=3), None),
        (DataLoader(Stream(), batch_size=3), None),
        (DataLoader(as_dicts(["pixel_values", "labels"]), batch_size=3), None),
        ([(IMAGES[:4], LABELS[:4]), (IMAGES[4:], LABELS[4:])], None),
        (iter([(IMAGES, LABELS, "a third thing")]), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_form_gives_the_same_tensors(images, labels):
    x, y = read_samples(images, labels)
    torch.testing.assert_close(x, IMAGES, rtol=0, atol=0)
    assert torch.equal(y, LABELS)


def test_tensors_are_not_copied():
    x, y = read_samples(IMAGES, LABELS)
    assert x is IMAGES and y is LABELS


def test_a_shuffling_loader_keeps_pairs_and_the_global_random_state():
    loader, state = DataLoader(DATA, batch_size=2, shuffle=True), torch.get_rng_state()
    x, y = read_samples(loader, None)
    assert not torch.equal(y, LABELS) and torch.equal(x, IMAGES[y])
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (IMAGES, None, "labels are missing, and a Tensor has none: pass labels, or a Data"),
        (IMAGES.numpy(), None, "labels are missing, and a ndarray has none"),
        (3, None, "labels are missing, and a int has none"),
        (DataLoader(DATA), LABELS, "a DataLoader has labels of its own.*threat="),
        (DATA, LABELS, "a TensorDataset has labels of its own"),
        (DataLoader(IMAGES), None, "an item of the DataLoader is a Tensor: it must be"),
        (TensorDataset(IMAGES), None, "an item of the TensorDataset is a tuple"),
        (as_dicts(["x", "y"]), None, r"is a dict: it must be .* 'images' and 'labels'"),
        ([], None, "the list is empty: there are no images"),
        ([(IMAGES[0], 1), (IMAGES[0, :, :1], 0)], None, r"differ in shape.*\(1, 1, 2\)"),
        (TensorDataset(IMAGES, torch.eye(7)), None, "images of shape .* one class index"),
        ([("cat.png", 1)], None, "images of the list are a tensor.* not str"),
        (IMAGES, object(), "labels are a tensor, a NumPy array or a list .* not object"),
    ],
    ids=range(13),
)
def test_what_cannot_be_read_is_one_sentence(images, labels, words):
    with pytest.raises(ValueError, match=words):
        read_samples(images, labels)
