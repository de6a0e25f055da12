"""Zooms and brightness, each keyed by its sample."""

import pytest
import torch
from scipy.stats import kstest

from advnorm.data.augment import crop_flip
from advnorm.data.jitter import brighten, crop_flip_jitter, factors, zoom
from advnorm.draws import Draws

DRAWS = Draws.of(3, torch.arange(40))


def ramp(count: int, size: int) -> torch.Tensor:
    """Return images whose pixels hold their own position from the centre, in [-1, 1]."""
    centres = (2 * torch.arange(size, dtype=torch.float64) + 1) / size - 1
    rows = centres[:, None].expand(size, size)
    return torch.stack([rows, rows.T]).expand(count, 2, size, size).contiguous()


def test_a_zoomed_ramp_is_the_ramp_over_the_factor():
    images = ramp(40, 20)
    factor = factors(DRAWS.stream("zoom"), 0.3).double()[:, None, None, None]
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
    expected = images * factors(DRAWS.stream("brightness"), 0.5)[:, None, None, None]
    assert torch.equal(bright, expected.clamp(max=1)) and expected.max() > 1


@pytest.mark.parametrize("stream", ["zoom", "brightness"])
def test_factors_are_uniform(stream):
    found = factors(Draws.of(0, torch.arange(5_000)).stream(stream), 0.1)
    assert kstest((found.numpy() - 0.9) / 0.2, "uniform").pvalue > 1e-3


def test_crops_and_flips_come_first():
    images = torch.rand(40, 3, 8, 8)
    cut = crop_flip(images, DRAWS)
    assert torch.equal(crop_flip_jitter(images, DRAWS), brighten(zoom(cut, DRAWS), DRAWS))
