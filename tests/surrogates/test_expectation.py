"""Means over draws are expectations; draws of a verdict are functions of (seed, sample)."""

import pytest
import torch
from scipy.stats import binom
from torch import nn

import advnorm
from advnorm.draws import Draws
from advnorm.evaluation import Adaptation, adapted
from advnorm.surrogates import drawn_logits, expected_logits, seeded
from advnorm.threat import Linf


class Noisy(nn.Module):
    """A square of a noisy linear map: E (w x + s t)^2 = (w x)^2 + s^2."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 3, bias=False)

    def forward(self, x):
        z = self.linear(x)
        return (z + 0.5 * torch.randn_like(z)).square()


class Coin(nn.Module):
    """Turns the logits around with a probability that is a function of the image."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        flip = torch.rand(len(x), 1, device=x.device) < x.flatten(1)[:, :1]
        logits = self.net(x)
        return torch.where(flip, -logits, logits)


def test_the_gradient_of_the_mean_converges_to_the_closed_form():
    model, x = Noisy().double(), torch.rand(4, 8, dtype=torch.float64)
    weight = model.linear.weight.detach()
    exact = 2 * (x @ weight.T) @ weight  # of the sum over classes of (w x)^2
    errors = []
    for draws in (16, 4096):
        leaf = x.clone().requires_grad_()
        with seeded(0, x):
            mean = expected_logits(model, draws)(leaf)
        (grad,) = torch.autograd.grad(mean.sum(), leaf)
        errors.append(float((grad - exact).norm() / exact.norm()))
    assert errors[1] < errors[0] / 6
    assert errors[1] < 0.05


def test_noise_smooths_a_ripple_to_its_expectation():
    """E sin(w (x + s t)) = exp(-w^2 s^2 / 2) sin(w x)."""
    ripple = lambda x: torch.sin(30 * x)  # noqa: E731
    x = torch.linspace(0, 0.2, 40, dtype=torch.float64)[:, None]
    mean = expected_logits(ripple, 2000, noise=0.05)(x)
    expected = torch.exp(torch.tensor(-((30 * 0.05) ** 2) / 2)) * ripple(x)
    assert (mean - expected).abs().max() < 0.06
    again = expected_logits(ripple, 2000, noise=0.05)(x[7:9])
    torch.testing.assert_close(again, mean[7:9])  # whatever else is in the batch


def flat_images(count):
    """Images whose first pixel is the probability of a flip, 0.1 to 0.4."""
    images = torch.full((count, 1, 2, 2), 0.5)
    images[:, 0, 0, 0] = torch.linspace(0.1, 0.4, count)
    return images


def constant():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        net[1].weight.zero_()
        net[1].bias.copy_(torch.tensor([1.0, -1.0]))
    return net


def test_frequencies_of_a_coin_agree_with_the_binomial():
    images, draws = flat_images(20), 250
    result = advnorm.evaluate(
        Coin(constant()),
        images,
        torch.zeros(20).long(),
        conditions=["clean"],
        adapt=Adaptation(draws=draws),
    )
    (key,) = result.verdicts
    verdicts = result.verdicts[key]
    right = 1 - images[:, 0, 0, 0].double()
    counts = [sum(row) for row in verdicts.draws]
    for count, p in zip(counts, right.tolist(), strict=True):
        low, high = binom.interval(1 - 1e-5, draws, p)
        assert low <= count <= high
    summary = result.results[0].draws
    assert summary.mean == pytest.approx(float(right.mean()), abs=0.02)
    assert verdicts.robust == tuple(row[0] for row in verdicts.draws)
    assert result.results[0].accuracy.correct == sum(verdicts.robust)
    n = len(counts)
    chance = binom.cdf(sum(verdicts.robust), n, float(right.mean()))
    assert 1e-4 < chance < 1 - 1e-4  # the verdict is one fair draw, not the best of many


def test_an_attack_raises_the_probability_of_a_flip():
    """The worst image of the ball has its first pixel at the bound: frequency 1 - p - eps.

    The mean of the logits is 1 - 2 p times the network's, so its gradient leads there.
    """

    class Mean(Coin):
        def forward(self, x):
            p = x.flatten(1)[:, :1]
            flip = torch.rand(len(x), 1) < p
            soft = (1 - 2 * p) * self.net(x)
            hard = torch.where(flip, -1.0, 1.0) * self.net(x)
            return hard.detach() + soft - soft.detach()

    images, eps, draws = flat_images(20), 0.2, 200
    result = advnorm.evaluate(
        Mean(constant()),
        images,
        torch.zeros(20).long(),
        Linf(eps),
        conditions=["pgd-10"],
        adapt=Adaptation(draws=draws),
        keep="adversarial",
    )
    right = 1 - images[:, 0, 0, 0].double() - eps
    mean = result.results[0].draws.mean
    assert mean == pytest.approx(float(right.mean()), abs=0.03)


def test_draws_depend_on_seed_and_sample_alone():
    model, images = Coin(constant()), flat_images(10)
    keys = Draws.of(3, torch.arange(10))
    whole = drawn_logits(model, images, keys, 6)
    few = torch.tensor([7, 2])
    assert torch.equal(drawn_logits(model, images[few], keys[few], 6), whole[few])
    state = torch.get_rng_state()
    drawn_logits(model, images[:2], keys[:2], 3)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_randomness_it_is_said_and_done_once():
    model, calls = constant(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    arguments = (model, flat_images(10), torch.zeros(10).long(), Linf(0.1))
    plain = advnorm.evaluate(*arguments, conditions=["pgd-5"])
    before = len(calls)
    adapt = advnorm.evaluate(*arguments, conditions=["pgd-5"], adapt=Adaptation(draws=50))
    (result,) = adapt.results
    assert "not randomized" in result.notes[0]
    assert "each pass is made once" in result.notes[0]
    assert len(calls) - before < 2 * before + 10
    assert result.draws is None
    (own,), (other,) = plain.verdicts.values(), adapt.verdicts.values()
    assert own.robust == other.robust
    assert not other.draws


def test_adapted_averages_in_an_attack_of_ones_own():
    """The deviation of a mean of 100 is a tenth of that of a pass."""
    model, x = Noisy(), torch.rand(4, 8)
    mean = adapted(model, Adaptation(draws=100), x)
    with seeded(1, x):
        means, passes = (
            torch.stack([f(x).detach() for _ in range(60)]) for f in (mean, model)
        )
    ratio = float(means.std(0).mean() / passes.std(0).mean())
    assert 0.07 < ratio < 0.14
