"""Distances against drawn Gaussians and hand-made features."""

import pytest
import torch
from scipy.stats import wasserstein_distance
from torch import nn

from advnorm import diagnosis, norms
from advnorm.diagnosis.attacked_domains import three_domains
from advnorm.diagnosis.common import frozen_eval
from advnorm.diagnosis.features import feature_layers, feature_moments, record_features
from advnorm.diagnosis.wasserstein import (
    distance_from_running,
    layer_distances,
    squared_distance,
)
from advnorm.models import build
from advnorm.norms.moments import Moments, measure_moments
from advnorm.threat import Linf


def test_it_is_the_distance_of_drawn_gaussians():
    """In one dimension W2 pairs sorted samples: a mean of squares, by quantiles."""
    generator = torch.Generator().manual_seed(0)
    a = 1.5 + 0.7 * torch.randn(200_000, 1, generator=generator).double()
    b = -0.5 + 2.0 * torch.randn(200_000, 1, generator=generator).double()
    drawn = (a.sort(0).values - b.sort(0).values).square().mean()
    exact = squared_distance(
        Moments(torch.tensor([1.5]), torch.tensor([0.49]), 1),
        Moments(torch.tensor([-0.5]), torch.tensor([4.0]), 1),
    )
    assert float(exact) == pytest.approx(4 + 1.69, rel=1e-6)
    assert float(drawn) == pytest.approx(float(exact), rel=0.02)
    assert float(squared_distance(measure_moments(a), measure_moments(b))) == pytest.approx(
        float(exact), rel=0.02
    )
    shifted = Moments(torch.tensor([2.5]), torch.tensor([0.49]), 1)
    same = Moments(torch.tensor([1.5]), torch.tensor([0.49]), 1)
    first = wasserstein_distance(a[:, 0].numpy(), (a[:, 0] + 1).numpy())  # W1 of a shift
    assert float(squared_distance(shifted, same)) == pytest.approx(first**2, rel=1e-6)


@pytest.mark.parametrize("norm", ["batch", "group", "mixture", "dual", "none"])
def test_features_are_seen_where_they_enter_the_norms(norm):
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), norms.NORMS[norm]()(4), nn.ReLU(), nn.Linear(4, 2)]
    model = nn.Sequential(*layers).eval()
    x = torch.rand(9, 3)
    assert list(feature_layers(model)) == (["0"] if norm == "none" else ["1"])
    with record_features(model) as seen:
        model(x)
    (value,) = seen.values()
    torch.testing.assert_close(value, layers[0](x))
    moments = next(iter(feature_moments(model, x).values()))
    torch.testing.assert_close(moments.mean, layers[0](x).mean(0))
    assert all(not layer._forward_hooks for layer in model.modules())
    assert all(not layer._forward_pre_hooks for layer in model.modules())
    with (
        pytest.raises(ValueError, match=r"closest|there are"),
        record_features(model, ["7"]),
    ):
        pass


def test_distance_of_a_batch_from_running_statistics_by_hand():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).eval()
    x = torch.tensor([[0.0, 1.0], [2.0, 1.0]])  # means 1, 1; deviations 1, 0
    model[0].running_mean[:] = torch.tensor([1.0, 3.0])
    model[0].running_var[:] = torch.tensor([4.0, 1.0])
    assert distance_from_running(model, x) == {"0": pytest.approx((0 + 4) + (1 + 1))}


def test_distances_are_zero_to_oneself_and_the_model_is_left_alone():
    torch.manual_seed(1)
    model = build("cnn_small", shape=(1, 12, 12), classes=5, norm=norms.NORMS["batch"]())
    images = torch.rand(8, 1, 12, 12)
    labels = model.eval()(images).argmax(1)
    model.train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    answer = diagnosis.distances(
        model, images, labels, threat=Linf(0.3), steps=3, suite="quick"
    )
    assert set(answer.numbers) == {"clean to pgd-3", "clean to quick", "pgd-3 to quick"}
    with frozen_eval(model):
        domains = three_domains(model, images, labels, Linf(0.3), steps=3, suite="quick")
        clean, pgd, quick = (feature_moments(model, x) for x in domains.values())
    for name, (one, other) in {
        "clean to pgd-3": (clean, pgd),
        "clean to quick": (clean, quick),
        "pgd-3 to quick": (pgd, quick),
    }.items():
        gaps = [
            ((one[k].mean - other[k].mean) ** 2).sum()
            + ((one[k].var ** 0.5 - other[k].var ** 0.5) ** 2).sum()
            for k in one
        ]
        assert len(gaps) > 1 and answer.numbers[name] > 0
        assert answer.numbers[name] == pytest.approx(float(sum(gaps)), rel=1e-4), name
    assert model.training and all(p.grad is None for p in model.parameters())
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    model.eval()
    seen = feature_moments(model, images)
    assert sum(layer_distances(seen, seen).values()) == 0


@pytest.mark.parametrize("question", [diagnosis.distances, diagnosis.pca])
def test_a_network_without_features_is_refused(question):
    images, labels = torch.rand(8, 4), torch.arange(8) % 2
    with pytest.raises(ValueError, match="neither a norm nor a hidden layer"):
        question(nn.Linear(4, 2), images, labels, threat=Linf(0.3), suite="quick")
