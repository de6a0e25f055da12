"""Statistics by branch and channel, by hand."""

from math import pi, sqrt

import pytest
import torch
from torch import nn

from advnorm import diagnosis, norms
from advnorm.diagnosis.branches import moment_gap, running_moments
from advnorm.models import build
from advnorm.norms.moments import Moments
from advnorm.threat import Linf


def of(mean, var):
    return Moments(torch.tensor(mean), torch.tensor(var), 0)


def test_gaps_by_hand():
    one, other = of([1.0, 0.0], [4.0, 1.0]), of([0.0, 0.0], [4.0, 2.0])
    gap = moment_gap(one, other, deviation=other.var.sqrt())
    assert gap.mean == pytest.approx((1 / 2 + 0) / 2)
    assert gap.variance == pytest.approx((0 + 1 / 2) / 2)
    gap = moment_gap(of([1.0], [4.0]), of([0.0], [2.0]), deviation=torch.tensor([4.0]))
    assert gap == pytest.approx((1 / 4, 2 / 16))


@pytest.mark.parametrize("norm", ["mixture", "dual"])
def test_both_branches_by_hand(norm):
    layer = norms.NORMS[norm]()(2)
    layer.clean.eps = layer.adversarial.eps = 1e-9  # numbers by hand have none
    layer.clean.running_var[:] = torch.tensor([1.0, 4.0])
    layer.adversarial.running_var[:] = torch.tensor([4.0, 16.0])
    layer.adversarial.running_mean[:] = torch.tensor([3.0, -2.0])
    model = nn.Sequential(layer, nn.Linear(2, 2))
    x = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 0.0], [8.0, 2.0]])
    answer = diagnosis.branches(model, x, torch.tensor([0, 1, 0, 1]))
    numbers = answer.numbers
    assert numbers["variance, adversarial by clean (geometric mean)"] == pytest.approx(4)
    assert numbers["squared distance of the branches"] == pytest.approx(9 + 4 + 1 + 4)
    apart = (3 / 2 + 2 / 4) / 2
    assert numbers["means of the branches apart, in deviations"] == pytest.approx(apart)
    above = (3 / 2 - 2 / 4) / 2
    assert numbers["mean, adversarial above clean, in deviations"] == pytest.approx(above)
    apart = (3 / 4 + 12 / 16) / 2
    assert numbers["variances of the branches apart, relative"] == pytest.approx(apart)
    # halves: means (1, 1) and (6, 1), unbiased variances (2, 0) and (8, 2), from N(0; 1, 4)
    mean = (1 + 0.5 + 6 + 0.5) / 4
    assert numbers["batch from running mean, in deviations"] == pytest.approx(mean)
    variance = (1 + 1 + 7 + 0.5) / 4
    assert numbers["batch from running variance, relative"] == pytest.approx(variance)
    by_chance = (5 + 0) / 2 / sqrt(2)
    name = "batch from running mean by chance, in deviations"
    assert numbers[name] == pytest.approx(by_chance)
    by_chance = (6 + 2 / 4) / 2 / sqrt(2)
    name = "batch from running variance by chance, relative"
    assert numbers[name] == pytest.approx(by_chance)
    means, variances = answer.panels
    assert {s.name: s.y for s in means.series} == {
        "running, clean": (0.0, 0.0),
        "running, adversarial": (3.0, -2.0),
        "batch 1, clean": (1.0, 1.0),
        "batch 2, clean": (6.0, 1.0),
    }
    assert variances.series[2].y == pytest.approx((2.0, 0.0))


def test_magnitudes_by_hand():
    """Means of 1 and -3 beside 2 and -2, in adversarial deviations of 2 and 1."""
    layer = norms.NORMS["mixture"]()(2)
    layer.clean.eps = layer.adversarial.eps = 1e-9
    layer.clean.running_mean[:] = torch.tensor([1.0, -3.0])
    layer.adversarial.running_mean[:] = torch.tensor([2.0, -2.0])
    layer.adversarial.running_var[:] = torch.tensor([4.0, 1.0])
    model = nn.Sequential(layer, nn.Linear(2, 2))
    numbers = diagnosis.branches(model, torch.rand(4, 2), torch.zeros(4).long()).numbers
    signed, magnitude = ((1 / 2 + 1) / 2, (1 / 2 - 1) / 2)
    name = "mean, {}adversarial above clean, in deviations"
    assert numbers[name.format("")] == pytest.approx(signed)
    assert numbers[name.format("magnitude of ")] == pytest.approx(magnitude)


def test_batches_are_parts_of_the_training_images():
    model = nn.Sequential(nn.BatchNorm1d(1, eps=1e-9), nn.Identity())
    training = torch.tensor([0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 9.0]).view(8, 1)
    answer = diagnosis.branches(
        model,
        torch.zeros(8, 1),
        torch.zeros(8).long(),
        batches=4,
        split="train",
        training_samples=lambda count: (training[:count], torch.zeros(count).long()),
    )
    numbers = answer.numbers  # batch means 1, 2, 5, 7 from a running mean of 0
    name = "batch from running mean{}, in deviations"
    assert numbers[name.format("")] == pytest.approx((1 + 2 + 5 + 7) / 4)
    by_chance = (1 + 2) / 2 / sqrt(2)
    assert numbers[name.format(" by chance")] == pytest.approx(by_chance)
    assert (answer.settings["batches"], answer.settings["split"]) == (4, "train")
    with pytest.raises(ValueError, match="leave out split"):
        diagnosis.branches(model, training, torch.zeros(8).long(), split="train")


CHANNELS = 20_000


def differences(*, count, shift=0.0, factor=1.0):
    """Return the four differences of normal batches of ``count``, by what they are of."""
    model = nn.Sequential(nn.BatchNorm1d(CHANNELS), nn.Identity())
    model[0].running_mean[:], model[0].running_var[:] = 3.0 + 2 * shift, 4.0 * factor
    draws = torch.randn(2 * count, CHANNELS, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(2 * count, dtype=torch.int64)
    return diagnosis.branches(model, 3 + 2 * draws, labels).numbers


@pytest.mark.parametrize("count", [20, 100])
def test_from_converged_statistics_a_batch_is_as_far_as_chance_puts_it(count):
    """Of n normal values: sqrt(2 / pi n) in the mean; in the variance about sqrt 2 more."""
    numbers = differences(count=count)
    distance = numbers["batch from running mean by chance, in deviations"]
    assert distance == pytest.approx(sqrt(2 / (pi * count)), rel=0.02)
    assert numbers["batch from running mean, in deviations"] == pytest.approx(
        distance, 0.02
    )
    distance = numbers["batch from running variance by chance, relative"]
    assert distance == pytest.approx(2 / sqrt(pi * count), rel=0.04)
    assert numbers["batch from running variance, relative"] == pytest.approx(distance, 0.02)


def test_from_other_statistics_a_batch_is_further_than_chance_puts_it():
    numbers = differences(count=100, shift=0.5, factor=2.0)
    chance = "batch from running mean by chance, in deviations"
    assert numbers["batch from running mean, in deviations"] > 5 * numbers[chance]
    chance = "batch from running variance by chance, relative"
    assert numbers["batch from running variance, relative"] > 5 * numbers[chance]


def test_with_a_threat_the_batches_are_adversarial():
    torch.manual_seed(0)
    model = build(
        "mlp", shape=(4,), classes=2, norm=norms.NORMS["mixture"](), options={"width": 6}
    )
    images, labels = torch.rand(8, 4), torch.arange(8) % 2
    answer = diagnosis.branches(model, images, labels, threat=Linf(0.2), attack="pgd-2")
    assert answer.settings["domain"] == "adversarial"
    names = [series.name for series in answer.panels[0].series]
    assert names[2:] == ["batch 1, adversarial", "batch 2, adversarial"]
    clean = diagnosis.branches(model, images, labels)
    assert clean.panels[0].series[2].y != answer.panels[0].series[2].y


def test_a_single_branch_says_so_and_channels_are_drawn():
    model = nn.Sequential(nn.BatchNorm1d(30), nn.Linear(30, 2))
    model[0].running_mean[:] = torch.arange(30.0)
    answer = diagnosis.branches(
        model, torch.rand(6, 30), torch.zeros(6, dtype=torch.int64), channels=7
    )
    assert "squared distance of the branches" not in answer.numbers
    running = answer.panels[0].series[0]
    assert running.name == "running" and len(running.y) == 7
    assert list(running.y) == sorted(set(running.y))


def test_places_without_running_statistics_are_refused_in_a_sentence():
    images, labels = torch.rand(4, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match="this model has none"):
        diagnosis.branches(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)), images, labels)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    with pytest.raises(ValueError, match="no batch norm '7'; there are: 0"):
        diagnosis.branches(model, images, labels, where="7")
    assert list(running_moments(model)["0"]) == ["both"]


@pytest.mark.parametrize("norm", ["batch", "mixture"])
def test_a_constant_channel_does_not_drown_the_others(norm):
    """Its running variance goes to zero; what divides it is the norm's constant c."""
    torch.manual_seed(0)
    bn = norms.NORMS[norm]()(4)
    model = nn.Sequential(nn.Linear(3, 4), bn, nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[0] = 0.0
        model[0].bias[0] = 0.37
    x = torch.rand(64, 3)
    for domain in ("clean", "adversarial"):
        with norms.route(model, domain=domain):
            for _ in range(400):
                model.train()(x + torch.randn(64, 3) / 10)
    for layer in norms.batch_norms(bn):
        layer.running_mean[0] += 1e-4  # as rounding has it after many passes
    numbers = diagnosis.branches(model, x, torch.zeros(64).long()).numbers
    assert numbers["batch from running mean, in deviations"] < 1
    if norm == "mixture":
        ratio = numbers["variance, adversarial by clean (geometric mean)"]
        assert ratio == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("count", [1, 3])
def test_too_few_images_for_two_batches_are_refused(count):
    model = nn.Sequential(norms.NORMS["batch"]()(2), nn.Linear(2, 2))
    with pytest.raises(ValueError, match=f"at least 4 images.*not {count}"):
        diagnosis.branches(model, torch.rand(count, 2), torch.zeros(count).long())
