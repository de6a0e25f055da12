"""Classes, balanced draws, held-out parts and sizes."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from advnorm.data import DataSet, TensorSplit, load, resize, select, subset
from advnorm.data.subsets import balanced_positions, hold_out
from advnorm.recipe import Recipe, override
from advnorm.training import components


def labelled(labels: list[int], images: torch.Tensor | None = None) -> DataSet:
    pixels = (
        torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8) if images is None else images
    )
    split = TensorSplit(pixels, torch.tensor(labels))
    names = tuple("abcd")
    return DataSet("some", tuple(pixels.shape[1:]), names, (0.0, 1.0), split, split, split)


def test_selected_classes_are_numbered_in_the_order_given():
    data = select(labelled([0, 1, 2, 3, 2, 1]), classes=(2, 0))
    assert data.classes == ("c", "a") and data.name == "some[2,0]"
    for split in (data.train, data.validation, data.test):
        assert split.labels.tolist() == [1, 0, 0]
        assert split.samples.tolist() == [0, 2, 4]


@pytest.mark.parametrize("classes", [(1,), (1, 1), (0, 4), (-1, 0)])
def test_a_bad_selection_says_what_to_give(classes):
    with pytest.raises(ValueError, match="two or more different ones from 0 to 3"):
        select(labelled([0, 1, 2, 3]), classes=classes)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.integers(0, 5),
    st.data(),
)
def test_a_subset_is_balanced_and_a_smaller_one_is_part_of_it(labels, seed, data):
    split = labelled(labels).train
    count = data.draw(st.integers(0, len(labels)))
    chosen = balanced_positions(split, count, classes=4, seed=seed)
    assert len(set(chosen.tolist())) == count and chosen.tolist() == sorted(chosen.tolist())
    have = torch.bincount(split.labels, minlength=4)
    drawn = torch.bincount(split.labels[chosen], minlength=4)
    for label in range(
        4
    ):  # a class is behind another only if it is used up, or by rounding
        assert drawn[label] >= min(int(have[label]), int(drawn.max()) - 1)
    smaller = balanced_positions(split, count // 2, classes=4, seed=seed)
    assert set(smaller.tolist()) <= set(chosen.tolist())


def test_a_subset_depends_on_seed_and_samples_not_on_their_order():
    data = load("digits")
    first = subset(data, train=100, test=None, seed=1)
    shuffled = replace(data, train=data.train.take(torch.randperm(len(data.train))))
    other = subset(shuffled, train=100, test=None, seed=1)
    assert sorted(first.train.samples.tolist()) == sorted(other.train.samples.tolist())
    assert len(first.test) == len(data.test) and first.name == "digits[train=100,seed=1]"
    third = subset(data, train=100, test=None, seed=2)
    assert sorted(first.train.samples.tolist()) != sorted(third.train.samples.tolist())


def test_each_sample_of_a_class_is_drawn_as_often():
    split = labelled([0] * 20 + [1] * 20).train
    times = torch.zeros(40)
    for seed in range(400):
        times[balanced_positions(split, 10, classes=2, seed=seed)] += 1
    # Binomial(400, 1/4): mean 100, deviation 8.7
    assert times.min() > 60 and times.max() < 140


def test_the_odd_sample_falls_on_each_class_as_often():
    split = labelled([0, 1, 2, 3] * 3).train
    odd = [
        split.labels[balanced_positions(split, 5, classes=4, seed=s)].bincount()
        for s in range(400)
    ]
    times = (torch.stack(odd) == 2).sum(0)
    assert times.sum() == 400 and times.min() > 65  # mean 100, deviation 8.7


def test_more_samples_than_there_are_is_refused():
    with pytest.raises(ValueError, match="some has 3 training samples: draw 0 to 3"):
        subset(labelled([0, 1, 2]), train=4, test=None, seed=0)


def test_a_held_out_part_and_the_rest_are_the_whole():
    split = labelled([0] * 47).train
    kept, held_out = hold_out(split, 0.1, seed=3, purpose="validation")
    assert len(held_out) == 5
    assert sorted(kept.samples.tolist() + held_out.samples.tolist()) == list(range(47))


@pytest.mark.parametrize("count", [2, 3, 10, 49, 50, 51, 999, 1000, 60_000])
def test_the_shares_that_are_named_work_and_smaller_ones_of_two_digits_do_not(count):
    split = labelled([0] * count).train
    with pytest.raises(ValueError, match=r"is 0 of .*: give .* to ") as caught:
        hold_out(split, 0.1 / count, seed=0, purpose="validation")
    least, most = re.search(r"give (\S+) to (\S+)$", str(caught.value)).groups()
    assert len(hold_out(split, float(least), seed=0, purpose="validation")[1]) == 1
    digits = int(least.replace(".", ""))
    assert round(float(least) * (digits - 1) / digits * count) == 0
    assert len(hold_out(split, float(most), seed=0, purpose="validation")[0]) == 1


def test_one_sample_cannot_be_shared():
    with pytest.raises(ValueError, match="is 1 of 1 samples: give more samples"):
        hold_out(labelled([0]).train, 0.6, seed=0, purpose="validation")


def test_bilinear_scaling_by_hand():
    # Doubling two pixels a, b puts samples at -1/4, 1/4, 3/4, 5/4: a, 3/4 a + 1/4 b, ...
    images = torch.tensor([[0, 201], [0, 201]], dtype=torch.uint8).view(1, 1, 2, 2)
    data = resize(labelled([0], images), size=4)
    assert data.shape == (1, 4, 4)
    assert data.train.images[0, 0].tolist() == [[0, 50, 151, 201]] * 4
    assert data.train.images.dtype == torch.uint8
    assert torch.equal(resize(data, size=4).train.images, data.train.images)


def test_shrinking_averages_the_pixels_it_leaves_out():
    # The two samples at 1.5 and 5.5 lie between zeros.
    stripes = torch.tensor([1.0, 0.0, 0.0, 1.0]).repeat(2).expand(1, 1, 8, 8)
    grey = resize(labelled([0], stripes), size=2).train.images
    assert grey.min() > 0.3 and grey.max() < 0.7


def test_the_nearest_pixel_is_pillows():
    torch.manual_seed(0)
    image = torch.randint(0, 256, (1, 1, 7, 7), dtype=torch.uint8)
    for size in (3, 10, 14, 21):
        resized = resize(labelled([0], image), size=size, resample="nearest").train.images
        drawn = Image.fromarray(image[0, 0].numpy())
        expected = drawn.resize((size, size), Image.Resampling.NEAREST)
        assert np.array_equal(resized[0, 0].numpy(), np.asarray(expected)), size


def test_an_unknown_way_of_scaling_is_refused():
    image = torch.zeros(1, 1, 7, 7, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"no resampling 'cubic'.*bilinear, nearest"):
        resize(labelled([0], image), size=3, resample="cubic")


def test_a_recipe_chooses_how_images_are_scaled():
    recipe = override(Recipe(), ["data={name: digits, size: 16, resample: nearest}"])
    images = components.load_data(recipe, root=None).test.images
    tiles = images.view(-1, 8, 2, 8, 2)
    assert torch.equal(tiles, tiles[:, :, :1, :, :1].expand_as(tiles))


def test_points_and_files_are_not_resized():
    with pytest.raises(ValueError, match="cannot resize gaussians"):
        resize(load("gaussians"), size=4)


def test_shrunk_floats_stay_in_their_bounds(tmp_path):
    images = np.ones((20, 28, 28), np.float32)
    images[:, :3] = 0
    np.savez(tmp_path / "ones.npz", images=images, labels=np.arange(20) % 2)
    data = load(f"npz:{tmp_path / 'ones.npz'}", size=9)
    assert isinstance(data.test, TensorSplit)
    assert data.test.images.min() >= 0 and data.test.images.max() <= 1
