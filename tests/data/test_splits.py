"""Splits in memory: floats, devices, orders, sample numbers, moments."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from advnorm.data import DataSet, TensorSplit, load, select, subset

CPU = torch.device("cpu")
DIGITS = load("digits").train


def data_set(images: torch.Tensor) -> DataSet:
    split = TensorSplit(images, torch.zeros(len(images), dtype=torch.int64))
    return DataSet(
        "some", tuple(images.shape[1:]), ("a", "b"), (0.0, 1.0), split, split, split
    )


def test_bytes_become_floats_in_steps_of_one_over_255():
    images = torch.tensor([0, 51, 255, 1], dtype=torch.uint8).view(4, 1, 1, 1)
    split = TensorSplit(images, torch.tensor([3, 2, 1, 0]))
    (batch,) = split.batches(torch.tensor([2, 1, 3]), batch_size=8, device=CPU)
    assert batch.images.dtype == torch.float32
    assert batch.images.flatten().tolist() == pytest.approx([1.0, 0.2, 1 / 255], abs=1e-7)
    assert batch.labels.tolist() == [1, 2, 0]
    assert batch.samples.tolist() == [2, 1, 3]


def test_a_split_is_a_dataset_of_images_and_labels():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    split = TensorSplit(images, torch.tensor([3, 2, 1]))
    samples = [(image.item(), label.item()) for image, label in split]
    assert samples == [(0.0, 3), (pytest.approx(0.2), 2), (1.0, 1)]
    with pytest.raises(IndexError):
        split[3]


def test_a_batch_is_a_copy_and_the_split_stays():
    split = TensorSplit(torch.rand(4, 2), torch.zeros(4, dtype=torch.int64))
    before = split.images.clone()
    for batch in split.batches(torch.arange(4), batch_size=2, device=CPU):
        batch.images.zero_()
    assert torch.equal(split.images, before)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20), st.integers(1, 7), st.integers(0, 100))
def test_batches_are_the_order_cut_into_pieces(count, batch_size, seed):
    data = DIGITS
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:count]
    batches = list(data.batches(order, batch_size=batch_size, device=CPU))
    sizes = [len(batch.labels) for batch in batches]
    assert (
        sizes == [len(part) for part in order.split(batch_size)]
        if count
        else not sum(sizes)
    )
    samples = [n for batch in batches for n in batch.samples.tolist()]
    assert samples == data.samples[order].tolist()


def test_the_images_move_to_a_device_once():
    split = TensorSplit(torch.rand(3, 2), torch.zeros(3, dtype=torch.int64))
    assert split._on(CPU).images is split._on(CPU).images
    meta = torch.device("meta")
    (batch,) = split.batches(torch.arange(3), batch_size=3, device=meta)
    assert batch.images.device == meta and split._on(meta).images is split._on(meta).images


def test_a_sample_keeps_its_number_and_image_through_every_subset():
    from sklearn.datasets import load_digits

    raw = load_digits()
    data = subset(select(load("digits"), classes=(7, 3)), train=50, test=20, seed=5)
    for split in (data.train, data.validation, data.test):
        (batch,) = split.batches(torch.arange(len(split)), batch_size=5000, device=CPU)
        source = np.rint(raw.images[batch.samples.numpy()] * 255 / 16) / 255
        assert np.abs(batch.images[:, 0].numpy() - source).max() < 1e-6
        expected = [{7: 0, 3: 1}[int(y)] for y in raw.target[batch.samples.numpy()]]
        assert batch.labels.tolist() == expected


def test_the_digest_changes_with_any_byte_label_number_or_order():
    images = torch.randint(0, 256, (6, 1, 2, 3), dtype=torch.uint8)
    labels, samples = torch.arange(6) % 3, torch.arange(6) + 10
    base = TensorSplit(images, labels, samples)
    assert base.digest() == TensorSplit(images.clone(), labels.clone(), samples).digest()
    others = [TensorSplit(images.view(6, 1, 3, 2), labels, samples)]
    others += [TensorSplit(images.view(torch.int8), labels, samples)]
    others += [TensorSplit(images, labels, samples + 1), base.take(torch.arange(5))]
    others += [base.take(torch.tensor([0, 1, 2, 3, 5, 4]))]
    for place in range(6):
        changed = labels.clone()
        changed[place] += 1
        others.append(TensorSplit(images, changed, samples))
    for place in range(images.numel()):
        bytes_ = images.clone()
        bytes_.view(-1)[place] ^= 1
        others.append(TensorSplit(bytes_, labels, samples))
    assert len({split.digest() for split in [base, *others]}) == len(others) + 1


def test_the_digest_of_a_strided_view_is_that_of_its_content():
    images = torch.rand(4, 5, 3)
    labels = torch.zeros(4, dtype=torch.int64)
    view = TensorSplit(images.transpose(1, 2), labels)
    assert (
        view.digest()
        == TensorSplit(images.transpose(1, 2).clone().contiguous(), labels).digest()
    )
    assert view.digest() != TensorSplit(images.reshape(4, 3, 5), labels).digest()


def test_the_digest_of_a_set_holds_all_three_splits_but_not_its_name():
    data = load("digits")
    assert data.digest() == load("digits").digest() == replace(data, name="x").digest()
    assert len(data.digest()) == 64
    smaller = data.test.take(torch.arange(9))
    changed = [replace(data, **{part: smaller}) for part in ("train", "validation", "test")]
    swapped = replace(data, train=data.test, test=data.train)
    digests = {other.digest() for other in [data, swapped, *changed]}
    assert len(digests) == 5


def test_moments_are_those_of_numpy():
    images = torch.randint(0, 256, (2500, 3, 4, 5), dtype=torch.uint8)
    images[:, 1] = images[:, 1] // 3
    pixels = images.double().numpy() / 255
    mean, std = data_set(images).moments()
    assert mean.numpy() == pytest.approx(pixels.mean((0, 2, 3)), abs=1e-6)
    assert std.numpy() == pytest.approx(pixels.std((0, 2, 3)), abs=1e-6)


def test_moments_of_vectors_are_per_feature():
    points = torch.randn(100, 2) * torch.tensor([1.0, 10.0]) + 3
    mean, std = data_set(points).moments()
    assert mean.numpy() == pytest.approx(points.numpy().mean(0), abs=1e-5)
    assert std.numpy() == pytest.approx(points.numpy().std(0), rel=1e-5)


@pytest.mark.parametrize("value", [0, 17, 255])
def test_a_constant_channel_has_std_one(value):
    images = torch.randint(0, 256, (1500, 2, 4, 4), dtype=torch.uint8)
    images[:, 0] = value
    std = data_set(images).moments().std
    assert std[0] == 1 and 0 < std[1] < 1


def test_moments_are_computed_once_and_only_where_there_is_training_data():
    data = load("digits")
    assert data.moments() is data.moments()
    empty = data_set(torch.rand(0, 1, 2, 2))
    with pytest.raises(ValueError, match="some has no training images"):
        empty.moments()
