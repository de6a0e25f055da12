"""Crops, flips, zooms, brightness and mixup, each keyed by its sample."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, kstest

from advnorm.data.augment import (
    AUGMENTATIONS,
    brighten,
    crop,
    crop_flip,
    crop_flip_jitter,
    crop_offsets,
    flip,
    jitter_factors,
    mixup,
    mixup_weights,
    zoom,
)
from advnorm.draws import Draws


def batch(count: int, size: int = 6) -> tuple[torch.Tensor, Draws]:
    return torch.rand(count, 3, size, size), Draws.of(7, torch.arange(count))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(3, 7), st.integers(3, 7))
def test_a_crop_is_a_slice_of_the_padded_image(pad, height, width):
    images = torch.rand(9, 2, height, width)
    draws = Draws.of(pad, torch.arange(9))
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    cut = crop(images, draws, pad=pad).numpy()
    for i, (row, column) in enumerate(crop_offsets(draws, pad=pad).tolist()):
        expected = padded[i, :, row : row + height, column : column + width]
        assert np.array_equal(cut[i], expected)


def test_offsets_are_uniform():
    offsets = crop_offsets(Draws.of(0, torch.arange(20_000)), pad=4)
    for axis in offsets.T:
        counts = torch.bincount(axis, minlength=9)
        assert len(counts) == 9  # 20,000 / 9 = 2,222, deviation 44
        assert counts.min() > 2000 and counts.max() < 2450


def test_half_of_the_images_are_mirrored():
    images = torch.arange(4.0).view(1, 1, 1, 4).expand(10_000, 1, 1, 4)
    flipped = flip(images, Draws.of(0, torch.arange(10_000)))[:, 0, 0]
    mirrored = (flipped == torch.tensor([3.0, 2.0, 1.0, 0.0])).all(1)
    same = (flipped == torch.arange(4.0)).all(1)
    assert bool((mirrored ^ same).all())
    assert 0.48 < mirrored.float().mean() < 0.52


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
@settings(max_examples=10, deadline=None)
@given(rows=st.lists(st.integers(0, 15), min_size=1, max_size=16, unique=True))
def test_an_image_does_not_depend_on_its_batch(name, rows):
    images, draws = batch(16)
    whole = AUGMENTATIONS[name](images, draws)
    part = AUGMENTATIONS[name](images[rows], draws[torch.tensor(rows)])
    assert torch.equal(part, whole[rows])
    assert whole.shape == images.shape and whole.dtype == images.dtype


def test_crop_flip_crops_then_mirrors_and_none_does_nothing():
    images, draws = batch(32)
    assert torch.equal(crop_flip(images, draws), flip(crop(images, draws), draws))
    assert AUGMENTATIONS["none"](images, draws) is images
    assert sorted(AUGMENTATIONS) == [
        "crop",
        "crop_flip",
        "crop_flip_jitter",
        "flip",
        "none",
    ]


def test_mirroring_and_cropping_are_independent():
    draws = Draws.of(0, torch.arange(20_000))
    images = torch.tensor([0.0, 1.0]).expand(20_000, 1, 2, 2)
    mirrored = flip(images, draws)[:, 0, 0, 0] == 1
    rows = crop_offsets(draws, pad=1)[:, 0]
    for offset in range(3):
        assert 0.47 < mirrored[rows == offset].float().mean() < 0.53


DRAWS = Draws.of(3, torch.arange(40))


def ramp(count: int, size: int) -> torch.Tensor:
    """Return images whose pixels hold their own position from the centre, in [-1, 1]."""
    centres = (2 * torch.arange(size, dtype=torch.float64) + 1) / size - 1
    rows = centres[:, None].expand(size, size)
    return torch.stack([rows, rows.T]).expand(count, 2, size, size).contiguous()


def test_a_zoomed_ramp_is_the_ramp_over_the_factor():
    images = ramp(40, 20)
    factor = jitter_factors(DRAWS.stream("zoom"), 0.3).double()[:, None, None, None]
    inside = slice(5, 15)  # the 10 pixels in the middle come from within the image
    zoomed, expected = zoom(images, DRAWS, spread=0.3), images / factor
    assert torch.allclose(zoomed[..., inside, inside], expected[..., inside, inside])
    assert zoomed[factor[:, 0, 0, 0] < 0.8][..., 0, 0].abs().max() == 0  # zero outside


def test_without_spread_nothing_changes():
    images = torch.rand(40, 3, 7, 5, dtype=torch.float64)
    assert torch.allclose(zoom(images, DRAWS, spread=0.0), images)
    assert torch.equal(brighten(images, DRAWS, spread=0.0), images)


def test_brightness_is_a_factor_an_image_cut_at_one():
    images = torch.rand(40, 3, 6, 6)
    bright = brighten(images, DRAWS, spread=0.5)
    expected = images * jitter_factors(DRAWS.stream("brightness"), 0.5)[:, None, None, None]
    assert torch.equal(bright, expected.clamp(max=1)) and expected.max() > 1


@pytest.mark.parametrize("stream", ["zoom", "brightness"])
def test_jitter_factors_are_uniform(stream):
    values = jitter_factors(Draws.of(0, torch.arange(5_000)).stream(stream), 0.1)
    assert kstest((values.numpy() - 0.9) / 0.2, "uniform").pvalue > 1e-3


def test_crops_and_flips_come_first():
    images = torch.rand(40, 3, 8, 8)
    cut = crop_flip(images, DRAWS)
    assert torch.equal(crop_flip_jitter(images, DRAWS), brighten(zoom(cut, DRAWS), DRAWS))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_mixup_weights_follow_the_beta_distribution(alpha):
    shares = mixup_weights(Draws.of(3, torch.arange(5000)), alpha=alpha).numpy()
    assert kstest(shares, beta(alpha, alpha).cdf).pvalue > 0.01


def test_mixup_mixes_images_and_labels_with_one_partner():
    images, draws = batch(8)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    mixed, soft = mixup(images, labels, draws, alpha=1.0, classes=3)
    shares = mixup_weights(draws, alpha=1.0).tolist()
    partners = []
    for i, share in enumerate(shares):
        fits = [
            j
            for j in range(8)
            if torch.allclose(
                mixed[i], share * images[i] + (1 - share) * images[j], atol=1e-6
            )
        ]
        assert len(fits) == 1
        partners.append(fits[0])
        expected = torch.zeros(3)
        expected[labels[i]] += share
        expected[labels[fits[0]]] += 1 - share
        assert torch.allclose(soft[i], expected, atol=1e-6)
    assert sorted(partners) == list(range(8)) and all(
        j != i for i, j in enumerate(partners)
    )


def test_mixup_does_not_depend_on_the_order_of_the_batch():
    images, draws = batch(8)
    labels = torch.arange(8)
    order = torch.randperm(8)
    mixed, soft = mixup(images, labels, draws, alpha=0.5, classes=8)
    again = mixup(images[order], labels[order], draws[order], alpha=0.5, classes=8)
    assert torch.equal(again.images, mixed[order]) and torch.equal(
        again.labels, soft[order]
    )


def test_mixup_without_alpha_is_refused():
    images, draws = batch(2)
    with pytest.raises(ValueError, match="alpha > 0"):
        mixup(images, torch.zeros(2, dtype=torch.int64), draws, alpha=0.0, classes=2)


@pytest.mark.parametrize("name", ["crop", "flip", "crop_flip"])
def test_vectors_are_refused_with_what_to_set(name):
    points, draws = torch.rand(5, 2), Draws.of(0, torch.arange(5))
    with pytest.raises(ValueError, match=r"is for images, .*\(2,\): set data.augment=none"):
        AUGMENTATIONS[name](points, draws)
