"""The planted test: honest attacks find what is planted, broken ones and masks do not."""

import pytest
import torch
from masked_models import NegatedGradients, RandomGradients, RequiresGradDecoy
from torch import nn

from advnorm import L0, L1, L2, Linf
from advnorm.draws import Draws
from advnorm.evaluation.last_layer import find_last_layer
from advnorm.evaluation.planted import planted_test
from advnorm.evaluation.planting import on_boundary
from advnorm.evaluation.readouts import RIDGES, fit_readout
from advnorm.models.linear import LogisticOutput

THREATS = [Linf(0.1), L2(0.7)]
ids = [threat.name for threat in THREATS]


class Rounded(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net((x * 15).round() / 15)


class Saturated(Rounded):
    def forward(self, x):
        return (1e4 * self.net(x)).softmax(1)


def network(seed=0, classes=5):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 25, 48),
        nn.ReLU(),
        nn.Linear(48, classes),
    ).eval()


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(8, 1, 12, 12, generator=generator), torch.arange(8) % 5


@pytest.mark.parametrize("threat", THREATS, ids=ids)
@pytest.mark.parametrize("seed", range(3))
def test_attacks_on_a_linear_model_find_every_plant_and_random_points_none(
    samples, threat, seed
):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 5))
    result = planted_test(model, *samples, threat, ["pgd-20"], seed=seed)
    assert (result.solved, result.missed, result.random) == (8, 0, 0)
    assert result.not_planted == 0 and not result.flagged and result.informative


@pytest.mark.parametrize("threat", [*THREATS, L1(5), L0(10)], ids=lambda t: t.name)
def test_the_standard_suite_finds_every_plant_of_a_small_network(samples, threat):
    result = planted_test(network(), *samples, threat, ["standard"])
    assert (result.solved, result.missed) == (8 - result.not_planted, 0)
    assert result.not_planted <= 2 and result.informative


@pytest.mark.parametrize("threat", THREATS, ids=ids)
@pytest.mark.parametrize(
    "mask", [NegatedGradients, RandomGradients, RequiresGradDecoy, Rounded, Saturated]
)
def test_masks_are_flagged(samples, threat, mask):
    result = planted_test(mask(network()), *samples, threat, ["pgd-20", "apgd_ce-20"])
    assert result.flagged and result.success.fraction <= 0.5
    assert result.success.n + result.not_planted == 8 and result.success.n >= 4


@pytest.mark.parametrize("threat", THREATS, ids=ids)
def test_an_attack_without_steps_is_flagged_where_it_finds_nothing(samples, threat):
    result = planted_test(network(), *samples, threat, ["pgd-20+step=1e-9"])
    assert result.flagged and result.solved <= 1


def test_a_saturated_model_is_searched_by_what_comes_after_its_last_layer(samples):
    """The features of both are the same: only the tail differs."""
    net = network()
    plain = planted_test(net, *samples, Linf(0.1), ["pgd-20"])
    saturated = planted_test(Saturated(net), *samples, Linf(0.1), ["pgd-20"])
    assert not plain.flagged and saturated.flagged
    assert plain.random == saturated.random and not saturated.not_planted


def test_the_result_does_not_depend_on_batch_size_and_order_and_leaves_the_model(samples):
    images, labels = samples
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    result = planted_test(model, images, labels, Linf(0.1), ["pgd-3"])
    again = planted_test(model, images, labels, Linf(0.1), ["pgd-3"], batch_size=37)
    turned = planted_test(
        model,
        images.flip(0),
        labels.flip(0),
        Linf(0.1),
        ["pgd-3"],
        samples=torch.arange(8).flip(0),
    )
    assert result == again == turned
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_model_without_a_last_linear_layer_is_said_to_have_none(samples):
    images, labels = samples
    model = nn.Sequential(nn.Conv2d(1, 5, 12), nn.Flatten())
    result = planted_test(model, images, labels, Linf(0.1), ["pgd-5"])
    assert "no linear layer" in str(result) and not result.flagged
    function = planted_test(lambda x: x.flatten(1)[:, :5], *samples, Linf(0.1), ["pgd-5"])
    assert function.reason and function.success.n == 0


def test_the_last_layer_is_the_one_that_decides(samples):
    images, _ = samples
    net, decoy = network(), network(seed=1)
    model = RequiresGradDecoy(net)
    assert find_last_layer(model, images, 5) is net[-1]

    class Leak(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.decoy = net, decoy

        def forward(self, x):
            return self.net(x) + 1e-3 * self.decoy(x)

    assert find_last_layer(Leak(), images, 5) is net[-1]
    two = nn.Sequential(nn.Flatten(), nn.Linear(144, 1), LogisticOutput())
    assert find_last_layer(two, images, 2) is two[1]
    result = planted_test(two, images, torch.arange(8) % 2, Linf(0.1), ["pgd-10"])
    assert (result.solved, result.missed) == (8, 0)


@pytest.mark.parametrize("features", [3, 40])
def test_a_readout_is_fishers_discriminant(features):
    generator = torch.Generator().manual_seed(0)
    inner = torch.randn(12, features, generator=generator, dtype=torch.float64)
    planted = 3 * torch.ones(features, dtype=torch.float64)
    fit = fit_readout(inner, planted)
    x = inner - inner.mean(0)
    covariance = x.T @ x / 12
    ridge = RIDGES[0] * covariance.diagonal().mean()
    w = torch.linalg.inv(covariance + ridge * torch.eye(features)) @ (planted - fit.mean)
    values, top = x @ w, (planted - fit.mean) @ w
    gap = top - values.max()
    torch.testing.assert_close(fit.weight, w / gap)
    torch.testing.assert_close(fit.threshold, (values.max() + 0.65 * gap) / gap)


def test_what_lies_inside_of_the_others_cannot_be_planted():
    inner = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert fit_readout(inner, torch.zeros(2)) is None
    assert fit_readout(torch.ones(4, 2), torch.ones(2)) is None


@pytest.mark.parametrize(
    "threat", [Linf(0.1), L2(0.7), L1(5), L0(10)], ids=lambda t: t.name
)
def test_plants_lie_on_the_boundary_also_in_a_corner_of_the_box(threat):
    clean = torch.zeros(20, 1, 12, 12)
    clean[10:] = 0.5
    points = on_boundary(threat, clean, Draws.of(0, torch.arange(20)))
    assert threat.contains(points, clean).all()
    assert (threat.distance(points, clean) >= 0.98 * threat.eps).all()
