"""Perturbed batch-norm statistics: directions, radii, and the model left as it was."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.data import Batch
from advnorm.evaluation import Perturbation, perturbed_statistics
from advnorm.evaluation.perturbed_statistics import directions


def trained(seed=0):
    """Train a small network to separate three noisy classes."""
    torch.manual_seed(seed)
    labels = torch.arange(240) % 3
    images = (
        torch.randn(240, 1, 4, 4) * 0.2 + 0.5 + 0.3 * labels.view(-1, 1, 1, 1)
    ).double()
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)
    ).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model, images, labels


@pytest.mark.parametrize("direction", ["uniform", "sign"])
@pytest.mark.parametrize("part", ["mean", "deviation"])
def test_running_statistics_are_shifted_as_section_4_5_says(direction, part):
    """The mean is (1 + eps v) mu, or sigma <- (1 + eps v) sigma, with sigma^2 = var + c."""
    model, images, labels = trained()
    what = Perturbation(direction, part)
    v = directions(model, what, seed=3)[model[1]]
    accuracies = perturbed_statistics(model, images, labels, radii=[0.6], what=what, seed=3)
    twin = deepcopy(model).eval()
    layer = twin[1]
    if part == "mean":
        layer.running_mean *= 1 + 0.6 * v.mean
    else:
        sigma = (layer.running_var + layer.eps).sqrt() * (1 + 0.6 * v.deviation)
        layer.running_var.copy_(sigma**2 - layer.eps)
    correct = (twin(images).argmax(1) == labels).sum()
    assert accuracies[0.6].correct == correct and accuracies[0.6].n == 240
    with norms.perturbed(model.eval(), what.shifts({model[1]: v}, 0.6)):
        assert torch.allclose(model(images), twin(images))


def test_directions_are_of_their_kind_and_shared_between_models():
    model, other = trained(0)[0], trained(1)[0]
    for name in ("uniform", "sign"):
        what = Perturbation(name, "both")
        one, two, new = (
            torch.cat([torch.cat(s) for s in directions(m, what, seed=seed).values()])
            for m, seed in ((model, 0), (other, 0), (model, 1))
        )
        assert torch.equal(one, two) and not torch.equal(one, new)
        assert bool((one.abs() == 1).all()) == (name == "sign")
        assert one.abs().max() <= 1 and one.min() < 0 < one.max()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("part", ["mean", "deviation", "both"])
def test_an_adversarial_direction_raises_the_loss_most(part, batch):
    """To first order: at a small radius no random sign raises the loss as much."""
    model, images, labels = trained()
    model.eval()
    samples = Batch(images, labels, torch.arange(240))
    losses = {}
    for name in ("sign", "adversarial"):
        what = Perturbation(name, part, batch=batch)
        shifts = what.shifts(directions(model, what, attacked=samples), 1e-3)
        with norms.perturbed(model, shifts, batch=batch):
            losses[name] = F.cross_entropy(model(images), labels).item()
    with norms.mode(model, "batch" if batch else "running"):
        start = F.cross_entropy(model(images), labels).item()
    assert losses["adversarial"] > start
    assert losses["adversarial"] > losses["sign"]


@pytest.mark.parametrize("direction", ["uniform", "sign", "adversarial"])
def test_radius_0_is_the_clean_accuracy_and_the_model_is_as_before(direction):
    model, images, labels = trained()
    model.train()
    before, flags = deepcopy(model.state_dict()), [m.training for m in model.modules()]
    accuracies = perturbed_statistics(
        model, images, labels, radii=[0.0, 0.5], what=Perturbation(direction, "both")
    )
    after = model.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert [m.training for m in model.modules()] == flags
    assert all(p.grad is None or p.requires_grad for p in model.parameters())
    clean = (model.eval()(images).argmax(1) == labels).sum()
    assert accuracies[0.0].correct == clean


def test_groups_see_only_themselves():
    model, images, labels = trained()
    what = Perturbation("sign", "both", batch=True, groups=8)
    accuracies = perturbed_statistics(
        model, images, labels, radii=[0.0], what=what, batch_size=240
    )
    model.train()
    with norms.keep_statistics(model):
        right = sum((model(images[j::8]).argmax(1) == labels[j::8]).sum() for j in range(8))
    assert accuracies[0.0].correct == right


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Perturbation("up"), "no direction 'up'"),
        (lambda: Perturbation(part="var"), "no part 'var'"),
        (lambda: Perturbation(groups=2), "groups=2"),
        (lambda: Perturbation().check(-0.1), "from 0 and below 1, not -0.1"),
        (lambda: Perturbation().check(1.0), "below 1, not 1"),
    ],
)
def test_refusals(make, words):
    with pytest.raises(ValueError, match=words):
        make()
