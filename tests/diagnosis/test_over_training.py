"""The questions that watch training, asked once; and the curves that looks amount to."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from advnorm import diagnosis, norms
from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.diagnosis.common import frozen_eval
from advnorm.diagnosis.features import feature_moments
from advnorm.diagnosis.gradient_norm import gradient_norms
from advnorm.diagnosis.moments import last_layers, record_deepest
from advnorm.diagnosis.wasserstein import running_moments_of, squared_distance
from advnorm.models import build
from advnorm.records.monitoring import (
    MonitoredStep,
    exponential_average,
    jumps,
    over_training,
    z_scores,
)
from advnorm.threat import Linf


def small(norm="batch"):
    torch.manual_seed(0)
    model = build("cnn_small", shape=(1, 12, 12), classes=4, norm=norms.NORMS[norm]())
    return model, torch.rand(8, 1, 12, 12), torch.arange(8) % 4


def test_gradient_norms_by_hand():
    found = gradient_norms([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])])
    assert float(found.total) == 13.0 and float(found.mean) == 8.5


def test_the_gradient_norm_is_that_of_a_backward_pass():
    model, images, labels = small()
    found = diagnosis.gradient_norm(model, images, labels)
    with norms.mode(model, "batch"):
        nn.functional.cross_entropy(model(images), labels).backward()
    whole = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()
    assert found.numbers["norm"] == pytest.approx(float(whole), 1e-5)
    every = [float(p.grad.norm()) for p in model.parameters()]
    assert found.numbers["mean of norms"] == pytest.approx(sum(every) / len(every), 1e-5)
    each = [float(p.grad.norm()) for p in model.parameters() if p.ndim > 1]
    assert found.panels[0].series[0].y == pytest.approx(each, rel=1e-4)


def test_the_deepest_map_is_what_the_last_convolution_takes():
    model, images, _ = small("none")
    model.eval()
    layers = last_layers(model)
    assert all(isinstance(layer, nn.Conv2d) for layer in layers)
    with record_deepest(model) as seen:
        model(images)
    inner = list(model.modules())
    stack = next(m for m in inner if isinstance(m, nn.Sequential) and layers[-1] in list(m))
    x, children = images, list(stack)
    before = children[: children.index(layers[-1])]
    for layer in before:
        x = layer(x)
    assert len(seen) == 1 and seen[0].shape[1:] == x.shape[1:]


def test_moments_average_over_channels():
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    images = torch.tensor([[[[1.0, 10.0]]], [[[5.0, 10.0]]]])
    found = diagnosis.moments(model, images, torch.zeros(2, dtype=torch.long))
    assert found.numbers == {"mean": 6.5, "variance": 2.0}  # means 3, 10; variances 4, 0


@pytest.mark.parametrize("norm", ["batch", "mixture", "dual", "borrowed"])
def test_each_domain_is_compared_with_its_own_statistics(norm):
    layer = norms.NORMS[norm]()(2)
    branches = [layer.clean, layer.adversarial] if norm in ("mixture", "dual") else [layer]
    for number, branch in enumerate(branches, start=1):
        branch.running_mean.fill_(number)
    wanted = [1.0, 2.0] if len(branches) == 2 else [1.0, 1.0]
    found = [
        running_moments_of(layer, domain).mean[0] for domain in ("clean", "adversarial")
    ]
    assert [float(value) for value in found] == wanted
    assert running_moments_of(nn.GroupNorm(1, 2), "clean") is None


def test_a_batch_is_at_its_own_statistics_but_for_the_unbiased_variance():
    model, images, labels = small()
    with norms.mode(model, "train"):
        for layer in norms.batch_norms(model):
            layer.momentum = 1.0
        model(images)
    found = diagnosis.wasserstein(model, images, labels, threat=Linf(0.1), steps=2)
    with norms.mode(model, "batch"):
        seen = feature_moments(model, images).values()
    gaps = [m.var.sum() * ((m.n / (m.n - 1)) ** 0.5 - 1) ** 2 for m in seen]
    assert found.numbers["clean"] == pytest.approx(float(sum(gaps)), 1e-3)
    with frozen_eval(model):
        attacked = attack_images(model, images, labels, Linf(0.1), attack="pgd-2")
    with norms.mode(model, "batch"):
        other = feature_moments(model, attacked)
    gaps = [
        squared_distance(other[name], running_moments_of(layer, "adversarial"))
        for name, layer in model.named_modules()
        if name in other
    ]
    assert found.numbers["adversarial"] == pytest.approx(float(sum(gaps)), 1e-4)
    assert found.numbers["adversarial"] > found.numbers["clean"]
    model, *_ = small("group")
    with pytest.raises(ValueError, match="no norm of the model has running statistics"):
        diagnosis.wasserstein(model, images, labels, threat=Linf(0.1), steps=1)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.floats(0.01, 1))
def test_the_average_is_its_closed_form(values, alpha):
    """Weights (1 - alpha)^(t - s) over their sum."""
    weights = (1 - alpha) ** np.arange(len(values))[::-1]
    closed = float(np.dot(weights, values) / weights.sum())
    assert exponential_average(values, alpha)[-1] == pytest.approx(closed, abs=1e-6)
    scores = np.array(z_scores(values))
    if np.std(values) > 1e-6:
        assert abs(scores.mean()) < 1e-6 and scores.std() == pytest.approx(1, 1e-6)


def test_looks_become_one_diagnosis_a_question():
    lines = [
        MonitoredStep(
            step=10 * i + 1,
            epoch=i / 5,
            numbers={
                "gradient_norm": 1.0 + i,
                "gradient_norm/mean": 0.5 * i,
                "hessian": -2.0,
                "mean/adversarial": float(i),
                "variance/adversarial": 1.0,
                "wasserstein/clean": 2.0,
                "wasserstein/adversarial": 4.0,
            },
        )
        for i in range(5)
    ]
    found = {d.question: d for d in over_training(lines)}
    assert list(found) == [
        "gradient_norm_over_training",
        "hessian_over_training",
        "moments_over_training",
        "wasserstein_over_training",
    ]
    gradient = found["gradient_norm_over_training"]
    assert gradient.panels[0].series[0].y == (1, 2, 3, 4, 5) and gradient.panels[0].log
    assert gradient.panels[0].series[0].x == (1, 11, 21, 31, 41)
    assert gradient.numbers["mean"] == 3 and gradient.numbers["most"] == 5
    assert gradient.numbers["end"] == 5
    assert gradient.numbers["mean of norms"] == 1
    assert gradient.numbers["mean of norms, end"] == 2
    assert "mean of norms" not in found["hessian_over_training"].numbers
    assert not found["hessian_over_training"].panels[0].log  # it may be negative
    spread = found["moments_over_training"].numbers
    assert spread["relative spread of the mean, adversarial"] == pytest.approx(2**0.5 / 2)
    assert spread["relative spread of the variance, adversarial"] == 0
    assert spread["jumps of the mean, adversarial"] == pytest.approx(1 / 2**0.5)
    assert spread["jumps of the variance, adversarial"] == 0
    distance = found["wasserstein_over_training"]
    assert (
        distance.numbers["clean, end"] == 2 and distance.numbers["adversarial, mean"] == 4
    )
    assert over_training([]) == []


def test_the_peak_of_a_distance_is_of_the_second_half():
    values = (9.0, 8.0, 1.0, 3.0, 2.0)
    lines = [
        MonitoredStep(step=i, epoch=i, numbers={"wasserstein/clean": value})
        for i, value in enumerate(values, start=1)
    ]
    (found,) = over_training(lines)
    assert found.numbers == {"clean, mean": 4.6, "clean, end": 2.0, "clean, peak": 3.0}


def test_jumps_do_not_depend_on_level_or_scale_and_one_look_has_none():
    values = (3.0, 1.0, 4.0, 1.0, 5.0)
    assert jumps([2 - 3 * value for value in values]) == pytest.approx(jumps(values))
    smooth, rough = (1.0, 2.0, 3.0, 4.0), (1.0, 4.0, 2.0, 3.0)
    assert jumps(smooth) < jumps(rough)
    assert jumps([7.0]) == 0
