"""Objectives of two domains against their equations, and both sides of every gradient."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import norms, objectives
from advnorm.attacks import divergence
from advnorm.draws import Draws
from advnorm.objectives import (
    CERTIFIED,
    OBJECTIVES,
    TWO_DOMAINS,
    Adversary,
    check_combination,
    forward_domains,
)

BATCHINGS = ("sequential", "concatenated")
INDEPENDENT = ("group", "layer", "none")


def net(norm="none"):
    torch.manual_seed(1)
    build = norms.NORMS[norm]()
    return nn.Sequential(
        nn.Linear(5, 8), build(8), nn.ReLU(), nn.Linear(8, 8), build(8), nn.Linear(8, 3)
    ).double()


def data():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(6, 5, generator=generator).double(), torch.arange(6) % 3


def shifted(logits_fn, clean, labels, goal):
    return clean + 0.25


def softmax_kl(p_logits, q_logits):
    """Return D_KL(p || q) a sample, from its definition."""
    p, q = torch.softmax(p_logits, 1), torch.softmax(q_logits, 1)
    return (p * (p / q).log()).sum(1)


def nll(logits, labels):
    return -torch.log(torch.softmax(logits, 1)[torch.arange(len(labels)), labels])


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("gamma", [0.0, 0.25, 0.5, 1.0])
def test_mixed_is_equation_1(batching, gamma):
    model, (clean, labels) = net(), data()
    loss = objectives.mixed(
        model, clean, labels, Adversary(shifted), gamma=gamma, batching=batching
    )
    one, other = nll(model(clean), labels).mean(), nll(model(clean + 0.25), labels).mean()
    torch.testing.assert_close(loss.total, gamma * one + (1 - gamma) * other)
    torch.testing.assert_close(sum(loss.parts.values()), loss.total.detach())
    assert loss.correct == (model(clean + 0.25).argmax(1) == labels).sum()


@pytest.mark.parametrize("share, kept", [(0.0, 0), (0.34, 2), (0.5, 3), (1.0, 6)])
@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_share_of_clean_images_removes_and_does_not_weigh(share, kept, batching):
    """xie2020 4.1: at gamma 0.5, the mean over all images that are left."""
    model, (clean, labels) = net(), data()
    loss = objectives.mixed(
        model, clean, labels, Adversary(shifted), clean_share=share, batching=batching
    )
    losses = [nll(model(clean[:kept]), labels[:kept]), nll(model(clean + 0.25), labels)]
    torch.testing.assert_close(loss.total, torch.cat(losses).mean())


@pytest.mark.parametrize("batching", BATCHINGS)
def test_alp_adds_the_squared_distance_of_paired_logits(batching):
    model, (clean, labels) = net(), data()
    loss = objectives.alp(
        model, clean, labels, Adversary(shifted), pairing=0.7, batching=batching
    )
    one, other = model(clean), model(clean + 0.25)
    expected = 0.5 * nll(one, labels).mean() + 0.5 * nll(other, labels).mean()
    expected = expected + 0.7 * ((one - other) ** 2).sum() / (6 * 3)
    torch.testing.assert_close(loss.total, expected)


@pytest.mark.parametrize("batching", BATCHINGS)
def test_mixed_kl_is_equation_3(batching):
    model, (clean, labels) = net(), data()
    loss = objectives.mixed_kl(
        model, clean, labels, Adversary(shifted), gamma=0.3, beta=0.4, batching=batching
    )
    one, other = model(clean), model(clean + 0.25)
    expected = 0.3 * nll(one, labels).mean() + 0.7 * nll(other, labels).mean()
    torch.testing.assert_close(loss.total, expected + 0.4 * softmax_kl(one, other).mean())


@pytest.mark.parametrize("batching", BATCHINGS)
def test_trades_is_equation_2(batching):
    model, (clean, labels) = net(), data()
    loss = objectives.trades(model, clean, labels, Adversary(shifted), batching=batching)
    one, other = model(clean), model(clean + 0.25)
    torch.testing.assert_close(
        loss.total, nll(one, labels).mean() + 6 * softmax_kl(one, other).mean()
    )


class Pair(nn.Module):
    """Two free logits tables, so that the gradient of each side can be read off."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.tables = nn.ParameterList(
            [
                nn.Parameter(torch.randn(6, 3, generator=generator).double())
                for _ in range(2)
            ]
        )

    def forward(self, x):
        """Rows whose first pixel is above 1 are adversarial."""
        rows = x[:, 1].long()
        picked = [table[rows] for table in self.tables]
        return torch.where((x[:, :1] > 1), picked[1], picked[0])


@pytest.mark.parametrize("name", ["trades", "mixed_kl", "alp"])
@pytest.mark.parametrize("batching", BATCHINGS)
def test_gradients_reach_both_sides_of_the_pair(name, batching):
    model = Pair()
    clean = torch.stack([torch.zeros(6), torch.arange(6.0)], 1).double()
    labels = torch.arange(6) % 3

    def attack(logits_fn, clean, labels, goal):
        return clean + torch.tensor([2.0, 0.0]).double()

    OBJECTIVES[name](
        model, clean, labels, Adversary(attack), batching=batching
    ).total.backward()
    c, a = (t.detach().requires_grad_() for t in model.tables)
    if name == "trades":
        expected = F.cross_entropy(c, labels) + 6 * softmax_kl(c, a).mean()
    else:
        expected = 0.5 * F.cross_entropy(c, labels) + 0.5 * F.cross_entropy(a, labels)
        more = (
            softmax_kl(c, a).mean() if name == "mixed_kl" else 0.5 * ((c - a) ** 2).mean()
        )
        expected = expected + more
    expected.backward()
    torch.testing.assert_close(model.tables[0].grad, c.grad)
    torch.testing.assert_close(model.tables[1].grad, a.grad)


def test_the_attack_of_trades_maximizes_the_divergence_from_fixed_clean_logits():
    model, (clean, labels) = net(), data()
    seen = []

    def attack(logits_fn, images, labels, goal):
        gain = goal(logits_fn, images, labels, Draws.of(0, torch.arange(6)))
        x = (images + 0.1).requires_grad_()
        value = gain(logits_fn(x))
        torch.testing.assert_close(value, softmax_kl(model(clean), model(x)))
        assert not any(p.requires_grad for p in model.parameters())
        seen.append(value)
        return images

    objectives.trades(model, clean, labels, Adversary(attack))
    assert len(seen) == 1


def test_the_divergence_is_flat_at_the_clean_image():
    model, (clean, labels) = net(), data()
    x = clean.clone().requires_grad_()
    gain = divergence(model(clean))(model, clean, labels, Draws.of(0, torch.arange(6)))
    (grad,) = torch.autograd.grad(gain(model(x)).sum(), x)
    assert grad.abs().max() < 1e-12


@pytest.mark.parametrize("name", sorted(TWO_DOMAINS))
@pytest.mark.parametrize("norm", INDEPENDENT)
def test_both_batchings_agree_exactly_where_the_norm_ignores_the_batch(name, norm):
    """sitawarin2021 3.1: the only difference lies in the BN layer."""
    results = []
    for batching in BATCHINGS:
        model, (clean, labels) = net(norm), data()
        loss = OBJECTIVES[name](model, clean, labels, Adversary(shifted), batching=batching)
        loss.total.backward()
        results.append([loss.total.detach(), *(p.grad for p in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


def first_layer_statistics(batching):
    """Return the first norm after one step, and the features of both domains."""
    model, (clean, _) = net("batch"), data()
    forward_domains(model, clean, clean + 0.25, batching=batching)
    return model[1], model[0](clean).detach(), model[0](clean + 0.25).detach()


def test_sequential_passes_move_one_set_of_statistics_twice_by_each_domain_in_turn():
    bn, clean, adversarial = first_layer_statistics("sequential")
    mean = 0.9 * (0.1 * clean.mean(0)) + 0.1 * adversarial.mean(0)
    var = 0.9 * (0.9 + 0.1 * clean.var(0)) + 0.1 * adversarial.var(0)
    torch.testing.assert_close(bn.running_mean, mean)
    torch.testing.assert_close(bn.running_var, var)
    assert bn.num_batches_tracked == 2


def test_concatenated_passes_move_it_once_by_the_mixed_moments():
    bn, clean, adversarial = first_layer_statistics("concatenated")
    both = torch.cat([clean, adversarial])
    torch.testing.assert_close(bn.running_mean, 0.1 * both.mean(0))
    torch.testing.assert_close(bn.running_var, 0.9 + 0.1 * both.var(0))
    assert bn.num_batches_tracked == 1


def test_sequential_passes_normalize_each_domain_by_its_own_moments():
    """A shift of a whole domain is then invisible; concatenated, it is not."""
    model, (clean, _) = nn.Sequential(norms.BatchNorm(5)).double(), data()
    outputs = forward_domains(model, clean, clean + 0.25, batching="sequential")
    torch.testing.assert_close(outputs.clean, outputs.adversarial)
    mixed = forward_domains(model, clean, clean + 0.25, batching="concatenated")
    assert (mixed.adversarial - mixed.clean).min() > 0.1


@pytest.mark.parametrize("batching", BATCHINGS)
def test_mixture_norm_keeps_the_domains_apart_in_both_batchings(batching):
    model, (clean, _) = net("mixture"), data()
    forward_domains(model, clean, clean + 0.25, batching=batching)
    layer = model[1]
    hidden = [model[0](clean).detach(), model[0](clean + 0.25).detach()]
    for branch, seen in zip((layer.clean, layer.adversarial), hidden, strict=True):
        torch.testing.assert_close(branch.running_mean, 0.1 * seen.mean(0))
        assert branch.num_batches_tracked == 1


def test_the_attack_sees_the_adversarial_branch_and_the_clean_logits_the_clean_one():
    model, (clean, labels) = net("mixture"), data()
    seen = []

    def attack(logits_fn, images, labels, goal):
        seen.append({layer.route.domain for layer in norms.routed_layers(model)})
        return images

    adversary = Adversary(attack)
    adversary(model, clean, labels)
    assert seen == [{"adversarial"}]
    model[1].clean.running_mean.fill_(3.0)
    with norms.mode(model, "running"), norms.route(model, domain="clean"):
        torch.testing.assert_close(adversary.clean_logits(model, clean), model(clean))


def test_the_likelihood_of_dual_norms_is_part_of_the_loss():
    totals = {}
    for weight in (0.0, 1.0, 2.0):
        model, (clean, labels) = net("dual"), data()
        loss = objectives.mixed(model, clean, labels, Adversary(shifted), likelihood=weight)
        totals[weight] = loss.total.item()
    model, (clean, labels) = net("dual"), data()
    with norms.likelihood(model) as terms, norms.route(model, clean=6):
        model(torch.cat([clean, clean + 0.25]))
    assert totals[1.0] - totals[0.0] == pytest.approx(sum(terms).item())
    assert totals[2.0] - totals[0.0] == pytest.approx(2 * sum(terms).item())


@pytest.mark.parametrize(
    "norm, objective, batching, words",
    [
        ("dual", "pgd", None, "needs both"),
        ("dual", "standard", None, "needs both"),
        ("dual", "mixed", "sequential", "batching=concatenated"),
        ("borrowed", "trades", "sequential", "batching=concatenated"),
    ],
)
def test_combinations_without_sense_are_refused(norm, objective, batching, words):
    with pytest.raises(ValueError, match=words):
        check_combination(norm=norm, objective=objective, batching=batching)


@pytest.mark.parametrize(
    "norm, rows, words",
    [
        ("dual", 0, "one domain"),
        ("borrowed", 0, "both domains"),
        ("mixture", 1, "one clean image"),
    ],
)
def test_a_share_of_clean_images_that_leaves_too_few_is_refused(norm, rows, words):
    with pytest.raises(ValueError, match=words):
        check_combination(norm=norm, objective="mixed", batching=None, clean_rows=rows)


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": 1.5},
        {"gamma": -0.1},
        {"clean_share": 2.0},
        {"gamma": 1.0, "clean_share": 0.0},
    ],
)
def test_weights_without_sense_are_refused(settings):
    model, (clean, labels) = net(), data()
    with pytest.raises(ValueError, match="from 0 to 1"):
        objectives.mixed(model, clean, labels, Adversary(shifted), **settings)


def test_other_combinations_are_not():
    for norm in norms.NORMS:
        for objective in OBJECTIVES:
            if objective in CERTIFIED and norm in ("mixture", "dual", "affine"):
                continue
            if norm != "dual" or objective in TWO_DOMAINS:
                check_combination(norm=norm, objective=objective, batching="concatenated")


def test_an_unknown_batching_is_refused():
    model, (clean, _) = net(), data()
    with pytest.raises(ValueError, match="must be 'sequential' or 'concatenated'"):
        forward_domains(model, clean, clean, batching="stacked")


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_divergences_of_half_precision_are_those_of_the_same_logits_in_single(half):
    """A divergence is a small difference: in half precision a third of it is rounding."""
    torch.manual_seed(0)
    clean = torch.randn(64, 10).to(half)
    near = (clean + 0.02 * torch.randn(64, 10)).to(half)
    slopes = []
    for dtype in (half, torch.float32):
        x = near.to(dtype).requires_grad_()
        gain = divergence(clean.to(dtype))(lambda y: y, x, None, None)(x)
        assert (gain > -1e-6).all()
        slopes.append(torch.autograd.grad(gain.sum(), x)[0].float())
    one, other = slopes
    assert (one - other).norm() < 0.01 * other.norm()
