"""The questions that can be monitored in training, asked once."""

import pytest
import torch
from torch import nn

from advnorm import diagnosis, norms
from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.diagnosis.common import frozen_eval
from advnorm.diagnosis.features import feature_moments
from advnorm.diagnosis.gradient_norm import gradient_norms
from advnorm.diagnosis.moments import last_layers, record_deepest
from advnorm.diagnosis.wasserstein import running_moments_of, squared_distance
from advnorm.models import build
from advnorm.threat import Linf


def small(norm="batch"):
    torch.manual_seed(0)
    model = build("cnn_small", shape=(1, 12, 12), classes=4, norm=norms.NORMS[norm]())
    return model, torch.rand(8, 1, 12, 12), torch.arange(8) % 4


def test_gradient_norms_by_hand():
    values = gradient_norms([torch.tensor([3.0, 4.0]), torch.tensor([[12.0]])])
    assert float(values.total) == 13.0 and float(values.mean) == 8.5


def test_the_gradient_norm_is_that_of_a_backward_pass():
    model, images, labels = small()
    answer = diagnosis.gradient_norm(model, images, labels)
    with norms.mode(model, "batch"):
        nn.functional.cross_entropy(model(images), labels).backward()
    whole = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()
    assert answer.numbers["norm"] == pytest.approx(float(whole), 1e-5)
    every = [float(p.grad.norm()) for p in model.parameters()]
    assert answer.numbers["mean of norms"] == pytest.approx(sum(every) / len(every), 1e-5)
    each = [float(p.grad.norm()) for p in model.parameters() if p.ndim > 1]
    assert answer.panels[0].series[0].y == pytest.approx(each, rel=1e-4)


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
    answer = diagnosis.moments(model, images, torch.zeros(2, dtype=torch.long))
    assert answer.numbers == {"mean": 6.5, "variance": 2.0}  # means 3, 10; variances 4, 0


@pytest.mark.parametrize("norm", ["batch", "mixture", "dual", "borrowed"])
def test_each_domain_is_compared_with_its_own_statistics(norm):
    layer = norms.NORMS[norm]()(2)
    branches = [layer.clean, layer.adversarial] if norm in ("mixture", "dual") else [layer]
    for number, branch in enumerate(branches, start=1):
        branch.running_mean.fill_(number)
    expected = [1.0, 2.0] if len(branches) == 2 else [1.0, 1.0]
    means = [
        running_moments_of(layer, domain).mean[0] for domain in ("clean", "adversarial")
    ]
    assert [float(value) for value in means] == expected
    assert running_moments_of(nn.GroupNorm(1, 2), "clean") is None


def test_a_batch_is_at_its_own_statistics_but_for_the_unbiased_variance():
    model, images, labels = small()
    with norms.mode(model, "train"):
        for layer in norms.batch_norms(model):
            layer.momentum = 1.0
        model(images)
    answer = diagnosis.wasserstein(model, images, labels, threat=Linf(0.1), steps=2)
    with norms.mode(model, "batch"):
        seen = feature_moments(model, images).values()
    gaps = [m.var.sum() * ((m.n / (m.n - 1)) ** 0.5 - 1) ** 2 for m in seen]
    assert answer.numbers["clean"] == pytest.approx(float(sum(gaps)), 1e-3)
    with frozen_eval(model):
        attacked = attack_images(model, images, labels, Linf(0.1), attack="pgd-2")
    with norms.mode(model, "batch"):
        other = feature_moments(model, attacked)
    gaps = [
        squared_distance(other[name], running_moments_of(layer, "adversarial"))
        for name, layer in model.named_modules()
        if name in other
    ]
    assert answer.numbers["adversarial"] == pytest.approx(float(sum(gaps)), 1e-4)
    assert answer.numbers["adversarial"] > answer.numbers["clean"]
    model, *_ = small("group")
    with pytest.raises(ValueError, match="no norm of the model has running statistics"):
        diagnosis.wasserstein(model, images, labels, threat=Linf(0.1), steps=1)
