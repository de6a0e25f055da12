"""Standardization against numbers by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from advnorm.models import PerImageStandardize, Standardize


def test_each_channel_has_its_own_moments():
    layer = Standardize([0.5, 0.0], [0.5, 2.0])
    images = torch.tensor([[[[1.0, 0.0]], [[1.0, 0.0]]]])
    assert layer(images).tolist() == [[[[1.0, -1.0]], [[0.5, 0.0]]]]


def test_vectors_and_volumes_are_standardized_alike():
    layer = Standardize([0.5, 0.0], [0.5, 2.0])
    vectors = torch.tensor([[1.0, 1.0]])
    assert layer(vectors).tolist() == [[1.0, 0.5]]
    volume = vectors.view(1, 2, 1, 1, 1).expand(1, 2, 3, 4, 5)
    assert torch.equal(layer(volume)[0, :, 2, 3, 4], torch.tensor([1.0, 0.5]))


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_memory_format_is_kept(memory):
    images = torch.rand(2, 3, 4, 5).contiguous(memory_format=memory)
    assert Standardize([0.5], [0.5])(images).is_contiguous(memory_format=memory)


def test_moments_are_buffers():
    layer = Standardize([0.5], [0.25])
    assert list(layer.parameters()) == []
    assert set(layer.state_dict()) == {"mean", "std"}


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan")])
def test_std_must_be_positive(std):
    with pytest.raises(ValueError, match="every std must be positive"):
        Standardize([0.5, 0.5], [0.5, std])


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.5, 0.5]), ([], [])])
def test_moments_must_pair(mean, std):
    with pytest.raises(ValueError, match="give one mean and one std a channel"):
        Standardize(mean, std)


def test_per_image_by_hand():
    # mean 2, deviations -2 -1 0 3, population variance 14 / 4
    image = torch.tensor([[[[0.0, 1.0]], [[2.0, 5.0]]]])
    expected = torch.tensor([-2.0, -1.0, 0.0, 3.0]) / 3.5**0.5
    torch.testing.assert_close(PerImageStandardize()(image).flatten(), expected)


@given(shift=st.floats(-1, 1), scale=st.floats(0.1, 10))
def test_per_image_ignores_brightness_and_contrast(shift, scale):
    torch.manual_seed(0)
    images = torch.rand(3, 2, 4, 4, dtype=torch.float64)
    layer = PerImageStandardize()
    torch.testing.assert_close(layer(scale * images + shift), layer(images))


def test_per_image_of_a_constant_image_is_zero_with_a_finite_gradient():
    image = torch.full((1, 1, 2, 2), 0.5, requires_grad=True)
    output = PerImageStandardize()(image)
    output.sum().backward()
    assert not output.any() and image.grad is not None and image.grad.isfinite().all()


def test_per_image_needs_a_positive_constant():
    with pytest.raises(ValueError, match="eps must be positive, not 0"):
        PerImageStandardize(eps=0.0)
