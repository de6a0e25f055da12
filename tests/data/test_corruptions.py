"""What holds for every corruption: bounds, levels, keys, and nothing else touched."""

from itertools import pairwise

import pytest
import torch
from data_files import smooth_images
from hypothesis import given, settings
from hypothesis import strategies as st

from advnorm.data import load
from advnorm.data.corruptions import COLOUR_ONLY, CORRUPTIONS, SEVERITIES, corrupt
from advnorm.data.in_memory import CIFAR10_C
from advnorm.draws import Draws

NAMES = list(CORRUPTIONS)


def digits(count):
    test = load("digits").test
    order = torch.arange(count)
    return next(test.batches(order, batch_size=count, device=torch.device("cpu"))).images


SETS = {
    "digits": digits(100),
    "grey 28": smooth_images(20, 1, 28, 28),
    "colour 32": smooth_images(20, 3, 32, 32),
    "colour 33x20": smooth_images(16, 3, 33, 20),
    "colour 64": smooth_images(4, 3, 64, 64),
    "colour 104": smooth_images(2, 3, 104, 104),
}


def draws_of(images, seed=0):
    return Draws.of(seed, torch.arange(len(images)))


def usable(name, images):
    return name not in COLOUR_ONLY or images.shape[1] == 3


def test_the_names_are_those_of_the_published_files():
    assert set(NAMES) == set(CIFAR10_C)


@pytest.mark.parametrize("name", NAMES)
def test_each_level_is_stronger_than_the_one_before_and_stays_in_the_bounds(name):
    for kind, images in SETS.items():
        if not usable(name, images):
            continue
        seen = [
            corrupt(images, draws_of(images), name=name, severity=s) for s in SEVERITIES
        ]
        distances = [(worse - images).abs().mean().item() for worse in seen]
        rising = all(a * 1.005 < b for a, b in pairwise(distances))
        assert rising, f"{kind}: {distances}"
        assert distances[0] > 1e-4, f"{kind}: the first level changes nothing"
        for worse in seen:
            assert worse.shape == images.shape and worse.dtype == images.dtype
            assert worse.isfinite().all() and worse.min() >= 0 and worse.max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_an_image_does_not_depend_on_its_batch_and_nothing_else_is_touched(name):
    images = smooth_images(6, 3, 17, 12, torch.float64)
    kept, state = images.clone(), torch.get_rng_state()
    whole = corrupt(images, draws_of(images), name=name, severity=4)
    rows = torch.tensor([4, 1])
    part = corrupt(images[rows], draws_of(images)[rows], name=name, severity=4)
    torch.testing.assert_close(part, whole[rows], rtol=0, atol=1e-12)
    again = corrupt(images, draws_of(images), name=name, severity=4)
    assert torch.equal(again, whole) and torch.equal(images, kept)
    assert torch.equal(torch.get_rng_state(), state)


RANDOM = {
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur"),
    *("motion_blur", "snow", "frost", "fog", "spatter", "elastic_transform", "saturate"),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_what_is_random_and_only_that(name):
    images = smooth_images(8, 3, 16, 16)
    first, second = (
        corrupt(images, draws_of(images, s), name=name, severity=5) for s in (0, 1)
    )
    assert (not torch.equal(first, second)) == (name in RANDOM)


@pytest.mark.parametrize("name", NAMES)
def test_other_bounds_are_the_same_corruption_scaled(name):
    images = smooth_images(3, 3, 16, 16, torch.float64)
    unit = corrupt(images, draws_of(images), name=name, severity=3)
    wide = corrupt(
        images * 4 - 1, draws_of(images), name=name, severity=3, bounds=(-1.0, 3.0)
    )
    differing = ((wide + 1) / 4 - unit).abs() > 1e-9  # a rounding may flip a level of JPEG
    assert differing.double().mean() < (0.01 if name == "jpeg_compression" else 1e-9)
    assert wide.min() >= -1 and wide.max() <= 3


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    severity=st.sampled_from(SEVERITIES),
    channels=st.sampled_from([1, 2, 3]),
    height=st.integers(1, 19),
    width=st.integers(1, 19),
    value=st.sampled_from([None, 0.0, 1.0]),
)
def test_any_size_any_channels_black_and_white(
    name, severity, channels, height, width, value
):
    images = torch.rand(2, channels, height, width) if value is None else None
    if images is None:
        images = torch.full((2, channels, height, width), value)
    if name in COLOUR_ONLY and channels != 3:
        with pytest.raises(ValueError, match="is for colour images"):
            corrupt(images, draws_of(images), name=name, severity=severity)
        return
    worse = corrupt(images, draws_of(images), name=name, severity=severity)
    assert worse.shape == images.shape and worse.isfinite().all()
    assert worse.min() >= 0 and worse.max() <= 1


def test_half_precision_is_computed_in_single():
    images = smooth_images(2, 3, 16, 16).bfloat16()
    worse = corrupt(images, draws_of(images), name="fog", severity=2)
    single = corrupt(images.float(), draws_of(images), name="fog", severity=2)
    assert worse.dtype == torch.bfloat16 and torch.equal(worse, single.bfloat16())


def test_mistakes_are_one_sentence():
    images = smooth_images(2, 3, 8, 8)
    with pytest.raises(ValueError, match="did you mean 'fog'"):
        corrupt(images, draws_of(images), name="fogg", severity=1)
    with pytest.raises(ValueError, match="give 1 to 5"):
        corrupt(images, draws_of(images), name="fog", severity=6)
    with pytest.raises(ValueError, match=r"is for images, not for samples of shape \(2,\)"):
        corrupt(torch.rand(3, 2), Draws.of(0, torch.arange(3)), name="fog", severity=1)
