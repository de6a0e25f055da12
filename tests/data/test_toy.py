"""The problems in the plane of galloway2019."""

import pytest
import torch

from advnorm.data import load


def test_gaussians_have_the_moments_of_the_paper():
    parts = [load("gaussians", seed=seed) for seed in range(20)]
    points = torch.cat([part.train.images for part in parts]).double()
    labels = torch.cat([part.train.labels for part in parts])
    assert 0.48 < labels.double().mean() < 0.52  # 20,000 draws: deviation 0.0035
    for label, mean in ((0, [-5.0, 0.0]), (1, [5.0, 0.0])):
        points_of_class = points[labels == label]
        assert points_of_class.mean(0).tolist() == pytest.approx(mean, abs=0.05)
        covariance = torch.cov(points_of_class.T)
        assert covariance[0, 0] == pytest.approx(1.0, rel=0.06)
        assert covariance[1, 1] == pytest.approx(0.01, rel=0.06)
        assert covariance[0, 1] == pytest.approx(0.05, rel=0.06)


def test_spheres_have_two_radii_and_as_many_points_of_each():
    data = load("spheres")
    assert (len(data.train), len(data.test), data.shape) == (500, 20_000, (2,))
    for split in (data.train, data.test):
        radii = split.images.norm(dim=1)
        expected = torch.tensor([1.0, 1.3])[split.labels]
        assert torch.allclose(radii, expected, atol=1e-6)
        assert split.labels.bincount().tolist() == [len(split) // 2] * 2
    angles = torch.atan2(data.test.images[:, 1], data.test.images[:, 0])
    counts = torch.histc(angles, 8, -torch.pi, torch.pi)
    assert counts.min() > 2300 and counts.max() < 2700  # 2,500 each, deviation 47


@pytest.mark.parametrize("name", ["gaussians", "spheres"])
def test_points_depend_on_the_seed_alone_and_stay_in_the_box(name):
    data, same, other = (load(name, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(data.train.images, same.train.images)
    assert not torch.equal(data.train.images, other.train.images)
    assert not torch.equal(data.train.images[:50], data.validation.images[:50])
    low, high = data.bounds
    for split in (data.train, data.validation, data.test):
        assert split.images.dtype == torch.float32
        assert low < split.images.min() and split.images.max() < high
    assert len(data.validation) == round(0.1 * len(data.train))
    assert len(load(name, validation=0).validation) == 0
    with pytest.raises(ValueError, match="leave out the size"):
        load(name, size=8)
