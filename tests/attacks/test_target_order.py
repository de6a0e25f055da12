"""Targets by distance to first order: exact on linear models, where all can be tried."""

import pytest
import torch
from torch import nn

import advnorm
from advnorm.attacks import apgd_t, fab_t, parse_attack, target_order
from advnorm.attacks.target_order import likeliest, malt
from advnorm.draws import Draws
from advnorm.threat import L2, Linf

WIDE = (-1e3, 1e3)


def linear(classes, pixels=30, seed=0):
    """Return a linear model whose classes have weights of different sizes and sparsity."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(pixels, classes)).double()
    sizes = torch.logspace(-1, 0.5, classes, dtype=torch.float64)
    dense = torch.rand(classes, pixels) < torch.linspace(0.05, 1, classes)[:, None]
    model[1].weight.data *= sizes[torch.randperm(classes), None] * dense
    images = torch.rand(20, 1, 1, pixels, dtype=torch.float64)
    return model.requires_grad_(requires_grad=False), images, model(images).argmax(1)


def smallest_radius(model, image, label, target, threat):
    """Return the radius at which the best point of the ball reaches a target, by bisection.

    The best point of a ball is a step along the weights' difference, whatever the model
    says of its gradient.
    """
    weight = model[1].weight[target] - model[1].weight[label]
    step = weight.sign() if threat.name == "linf" else weight / weight.norm()
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        logits = model((image.flatten() + middle * step)[None])[0]
        low, high = (low, middle) if logits[target] >= logits[label] else (middle, high)
    return high


@pytest.mark.parametrize("classes", [2, 7])
@pytest.mark.parametrize("threat", [Linf(0.1, WIDE), L2(0.1, WIDE)], ids=["linf", "l2"])
def test_the_order_is_that_of_the_smallest_radii(threat, classes):
    model, images, labels = linear(classes)
    logits, order = malt(model, images, labels, threat)
    assert torch.equal(logits, model(images)) and not logits.requires_grad
    for image, label, row in zip(images, labels, order, strict=True):
        wrong = [j for j in range(classes) if j != label]
        radii = [smallest_radius(model, image, int(label), j, threat) for j in wrong]
        expected = [j for _, j in sorted(zip(radii, wrong, strict=True))]
        assert row.tolist() == expected
    by_logits = likeliest(model, images, labels, threat)[1]
    assert torch.equal(order, by_logits) == (classes == 2)


@pytest.mark.parametrize("attack", [apgd_t, fab_t])
@pytest.mark.parametrize("kind", [Linf, L2])
def test_one_target_is_enough_where_the_nearest_class_is_not_the_likeliest(attack, kind):
    model, images, labels = linear(12)
    nearest = [
        min(
            smallest_radius(model, image, int(label), j, kind(0.1, WIDE))
            for j in range(12)
            if j != label
        )
        for image, label in zip(images, labels, strict=True)
    ]
    eps = sorted(nearest)[10]
    expected = [radius < 0.99 * eps for radius in nearest]
    assert 5 < sum(expected) < 15
    threat, draws = kind(eps * 0.99, WIDE), Draws.of(0, torch.arange(20))
    run = {"steps": 30, "targets": 1, "draws": draws}
    x = attack(model, images, labels, threat, order=malt, **run)
    assert (model(x).argmax(1) != labels).tolist() == expected
    x = attack(model, images, labels, threat, **run)
    assert (model(x).argmax(1) != labels).sum() < sum(expected)


def test_only_candidates_are_sorted(monkeypatch):
    model, images, labels = linear(7)
    monkeypatch.setattr(target_order, "CANDIDATES", 3)
    threat = Linf(0.1, WIDE)
    order = malt(model, images, labels, threat)[1]
    by_logits = likeliest(model, images, labels, threat)[1][:, :3]
    assert order.shape == (20, 3)
    assert torch.equal(order.sort(1).values, by_logits.sort(1).values)


@pytest.mark.parametrize("name", ["apgd_t-3", "fab_t-3"])
def test_the_option_reaches_the_attack_and_the_record(name):
    model, images, labels = linear(12)
    threat = Linf(0.02, WIDE)
    result = advnorm.evaluate(model, images, labels, threat, conditions=[f"{name}+malt"])
    assert result.results[0].settings["order"] == "malt"
    function = parse_attack(name).entry.function
    draws = Draws.of(0, torch.arange(20)).stream(f"{name}+malt", 0)
    x = function(model, images, labels, threat, steps=3, order=malt, draws=draws)
    (verdicts,) = result.verdicts.values()
    assert list(verdicts.robust) == (model(x).argmax(1) == labels).tolist()


def test_the_option_counts_its_passes_and_is_refused_elsewhere():
    assert parse_attack("apgd_t-10+malt").passes == parse_attack("apgd_t-10").passes + 200
    with pytest.raises(ValueError, match="malt"):
        parse_attack("pgd-10+malt")
