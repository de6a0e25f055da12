"""Certified training: Eqn. 6 and Alg. 1 of sridhar2021 against references."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import bounds, norms, objectives
from advnorm.bounds import ibp_margins, input_box, trace
from advnorm.objectives import OBJECTIVES, Adversary
from advnorm.threat import L2, Linf

EPS = 0.07


def network(kind: str, seed: int = 0) -> nn.Module:
    """Return a small convolutional network in double precision, gammas of both signs."""
    torch.manual_seed(seed)
    norm = {
        "none": lambda n, dims: nn.Identity(),
        "torch": lambda n, dims: nn.BatchNorm2d(n) if dims == 4 else nn.BatchNorm1d(n),
        "plain": lambda n, dims: norms.BatchNorm(n, affine=False),
        "ours": lambda n, dims: norms.BatchNorm(n),
        "borrowed": lambda n, dims: norms.BorrowedNorm(n),
        "median": lambda n, dims: norms.MedianNorm(n),
    }[kind]
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, stride=2),
        norm(3, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(27, 6),
        norm(6, 2),
        nn.ReLU(),
        nn.Linear(6, 4),
    ).double()
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.affine:
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return model.train()


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.rand(7, 1, 5, 5).double(), torch.randint(0, 4, (7,))


class Maps(NamedTuple):
    """The clean map and both bounds, and the running statistics that Alg. 1 leaves."""

    z: Tensor
    low: Tensor
    high: Tensor
    moved: dict[str, tuple[Tensor, Tensor]]


def weighted(layer: nn.Conv2d | nn.Linear, maps: Maps) -> Maps:
    """Take the lower bound where a weight is positive and the upper where negative."""

    def go(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if isinstance(layer, nn.Linear):
            return F.linear(x, weight, bias)
        return F.conv2d(x, weight, bias, layer.stride, layer.padding)

    up, down = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
    low = go(maps.low, up, layer.bias) + go(maps.high, down)
    high = go(maps.high, up, layer.bias) + go(maps.low, down)
    return Maps(go(maps.z, layer.weight, layer.bias), low, high, maps.moved)


def normalized(name: str, layer: nn.Module, maps: Maps) -> Maps:
    """Follow Alg. 1 line by line."""
    z = maps.z
    dims, shape = [0, *range(2, z.ndim)], (1, -1, *[1] * (z.ndim - 2))
    count, mean = z.numel() / z.shape[1], z.mean(dims)
    if isinstance(layer, norms.MedianNorm):
        mean = z.transpose(0, 1).flatten(1).median(1).values
    var = (z - mean.view(shape)).square().mean(dims)
    gamma = torch.ones_like(mean) if layer.weight is None else layer.weight
    beta = torch.zeros_like(mean) if layer.bias is None else layer.bias
    gamma, beta = gamma.view(shape), beta.view(shape)
    own, low, high = (
        (x - mean.view(shape)) / (var + layer.eps).sqrt().view(shape) for x in maps[:3]
    )
    m, d = gamma * (high + low) / 2 + beta, gamma.abs() * (high - low) / 2
    statistics = (
        0.9 * layer.running_mean + 0.1 * mean.detach(),
        0.9 * layer.running_var + 0.1 * var.detach() * count / (count - 1),
    )
    return Maps(gamma * own + beta, m - d, m + d, maps.moved | {name: statistics})


def reference(model: nn.Module, clean: Tensor, labels: Tensor, kappa: float):
    """Compute Eqn. 6 from its text: three maps, a layer at a time, bounds as bounds."""
    maps = Maps(clean, (clean - EPS).clamp(min=0), (clean + EPS).clamp(max=1), {})
    *layers, (_, last) = model.named_children()
    for name, layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            maps = weighted(layer, maps)
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            maps = normalized(name, layer, maps)
        else:
            maps = Maps(*map(layer, maps[:3]), maps.moved)
    rows = []
    for i, y in enumerate(labels.tolist()):
        c, bias = last.weight[y] - last.weight, last.bias[y] - last.bias
        rows.append(c.clamp(min=0) @ maps.low[i] + c.clamp(max=0) @ maps.high[i] + bias)
    margins = torch.stack(rows)
    loss = kappa * F.cross_entropy(last(maps.z), labels)
    return loss + (1 - kappa) * F.cross_entropy(-margins, labels), margins, maps.moved


@pytest.mark.parametrize("kind", ["none", "torch", "plain", "ours", "borrowed", "median"])
def test_loss_gradients_and_statistics_are_those_of_the_paper(kind):
    model, (clean, labels) = network(kind), batch()
    expected, margins, moved = reference(model, clean, labels, 0.3)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    loss = objectives.ibp(
        model, clean, labels, Adversary(None, threat=Linf(EPS)), kappa=0.3
    )
    loss.total.backward()
    torch.testing.assert_close(loss.total, expected, rtol=1e-10, atol=1e-12)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-9)
    for name, (mean, var) in moved.items():
        layer = model.get_submodule(name)
        torch.testing.assert_close(layer.running_mean, mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(layer.running_var, var, rtol=1e-12, atol=1e-12)
        assert layer.num_batches_tracked == 1
    others = margins.scatter(1, labels[:, None], torch.inf)
    assert loss.correct == (others.amin(1) > 0).sum()
    torch.testing.assert_close(sum(loss.parts.values()), loss.total.detach())


class Total(nn.Module):
    """The loss as a function of a model's parameters."""

    def __init__(self, model: nn.Module, objective=objectives.ibp) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, *values: Tensor) -> Tensor:
        if values:
            names = [name for name, _ in self.named_parameters()]
            arguments = dict(zip(names, values, strict=True))
            return torch.func.functional_call(self, arguments, ())
        adversary = Adversary(None, threat=Linf(EPS))
        return self.objective(self.model, *batch(), adversary).total


@pytest.mark.parametrize("kind", ["none", "ours"])
def test_derivatives_by_hand_are_right_also_the_second(kind):
    total = Total(network(kind))
    free = tuple(p.detach().clone().requires_grad_() for p in total.parameters())
    assert torch.autograd.gradcheck(total, free, atol=1e-6, fast_mode=True)
    assert torch.autograd.gradgradcheck(total, free, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("kind", ["none", "ours"])
def test_without_a_radius_it_is_clean_training(kind):
    model, other, (clean, labels) = network(kind), network(kind), batch()
    one = objectives.ibp(model, clean, labels, Adversary(None), kappa=0.2)
    two = objectives.standard(other, clean, labels, Adversary(None))
    tiny = objectives.ibp(
        network(kind), clean, labels, Adversary(None, threat=Linf(1e-200)), kappa=0.2
    )
    assert torch.equal(one.total, two.total) and one.correct == two.correct
    torch.testing.assert_close(tiny.total, one.total, rtol=1e-12, atol=1e-12)
    for mine, its in zip(model.buffers(), other.buffers(), strict=True):
        assert torch.equal(mine, its)


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.4)], ids=lambda t: t.name)
def test_no_attack_has_a_larger_loss_than_the_bound(threat):
    model, (clean, labels) = network("ours"), batch()
    loss = objectives.ibp(model, clean, labels, Adversary(None, threat=threat), kappa=0)
    model.eval()
    with norms.mode(model, "running"):
        margins, _ = ibp_margins(trace(model), input_box(clean, threat), labels)
        for _ in range(300):
            step = threat.eps * threat.direction(torch.randn_like(clean))
            logits = model(threat.project(clean + step, clean))
            true = logits.gather(1, labels[:, None]) - logits
            assert (true >= margins - 1e-12).all()
    assert torch.isfinite(loss.total)


def test_statistics_that_are_frozen_stay():
    model, (clean, labels) = network("ours"), batch()
    before = [buffer.clone() for buffer in model.buffers()]
    with norms.freeze_statistics(model):
        objectives.ibp(model, clean, labels, Adversary(None, threat=Linf(EPS)))
    assert all(map(torch.equal, before, model.buffers()))


@pytest.mark.parametrize("kind", ["mixture", "dual", "affine"])
def test_norms_that_keep_the_domains_apart_are_refused(kind):
    model = norms.convert(network("torch"), kind)
    with pytest.raises(ValueError, match=r"layer '1'.*model\.eval"):
        objectives.ibp(model, *batch(), Adversary(None, threat=Linf(EPS)))
    with pytest.raises(ValueError, match=r"Alg\. 1"):
        objectives.check_combination(norm=kind, objective="ibp", batching=None)


def test_mixed_labels_and_a_wrong_kappa_are_refused():
    model, (clean, labels) = network("none"), batch()
    soft = F.one_hot(labels, 4).double()
    with pytest.raises(ValueError, match="one class number"):
        objectives.ibp(model, clean, soft, Adversary(None, threat=Linf(EPS)))
    with pytest.raises(ValueError, match="kappa"):
        objectives.ibp(model, clean, labels, Adversary(None), kappa=1.1)


def test_it_is_listed():
    assert "ibp" in OBJECTIVES and "IBP" in OBJECTIVES.summary("ibp")


@pytest.mark.parametrize("kind", ["none", "ours"])
def test_crown_ibp_mixes_both_bounds_and_moves_the_statistics_once(kind):
    clean, labels = batch()
    adversary = Adversary(None, threat=Linf(EPS))
    model = network(kind)
    box = input_box(clean, Linf(EPS), with_clean=True)
    with norms.mode(model, "batch"):
        ibp = ibp_margins(trace(model), box, labels)
        crown, _ = bounds.crown_ibp_and_ibp_margins(trace(model), box, labels)
    assert not torch.allclose(ibp.lower, crown.lower)
    for beta in (0.0, 0.3, 1.0):
        model = network(kind)
        loss = objectives.crown_ibp(model, clean, labels, adversary, kappa=0.4, beta=beta)
        mixed = beta * crown.lower + (1 - beta) * ibp.lower
        expected = 0.4 * F.cross_entropy(ibp.logits, labels)
        expected = expected + 0.6 * F.cross_entropy(-mixed, labels)
        torch.testing.assert_close(loss.total, expected, rtol=1e-10, atol=1e-12)
        other = network(kind)
        objectives.ibp(other, clean, labels, adversary)
        for mine, its in zip(model.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["none", "ours"])
def test_gradients_reach_the_weights_through_crowns_bound(kind):
    total = Total(network(kind), objectives.crown_ibp)
    free = tuple(p.detach().clone().requires_grad_() for p in total.parameters())
    assert torch.autograd.gradcheck(total, free, atol=1e-6, fast_mode=True)


def test_a_wrong_beta_is_refused():
    with pytest.raises(ValueError, match="beta"):
        objectives.crown_ibp(network("none"), *batch(), Adversary(None), beta=1.5)
