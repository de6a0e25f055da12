"""Brackets of radii against closed forms, brute force and planted faults."""

from math import comb

import pytest
import torch
from torch import nn

from advnorm.evaluation import evaluate
from advnorm.evaluation.certificates import CertificateError
from advnorm.records import summarize_radii
from advnorm.significance import median_ranks
from advnorm.threat import L0, L1, L2, Linf

DUALS = {"linf": 1, "l2": 2, "l1": torch.inf}


def linear(n=24):
    """Return a linear model whose images are far from the bounds, and the exact radii."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(2, 16, generator=generator))
        model[1].bias.copy_(-model[1].weight.sum(1) / 2)
    images = (torch.rand(n, 1, 4, 4, generator=generator).double() - 0.5) * 0.1 + 0.5
    labels = model(images).argmax(1)
    labels[0] = 1 - labels[0]  # misclassified from the start
    w = (model[1].weight[1] - model[1].weight[0]).detach()
    gap = ((images.flatten(1) - 0.5) @ w).abs()
    gap[0] = 0
    return model, images, labels, {n: gap / w.norm(p=p) for n, p in DUALS.items()}


@pytest.mark.parametrize("threat", [Linf(0.02), L2(0.05), L1(0.1)], ids=str)
def test_broken_radii_are_the_closed_form_and_certified_ones_below(threat):
    model, images, labels, exact = linear()
    exact = exact[threat.name]
    result = evaluate(model, images, labels, threat, conditions=["clean"], radii=True)
    verdicts = result.verdicts[f"radii_{threat.name}_{threat.eps:g}"]
    pairs = torch.tensor(verdicts.radii, dtype=torch.float64)
    certified, broken = pairs.T
    torch.testing.assert_close(broken, exact, rtol=1e-2, atol=1e-9)
    assert (broken >= exact - 1e-9).all() and (certified <= exact).all()
    if threat.name == "linf":  # intervals are exact for one linear layer
        grid = threat.eps / 8
        reachable = exact.clamp(max=15 * grid)
        assert (certified >= reachable - grid - 1e-6).all()
    if threat.name == "l1":
        assert (certified == 0).all()
    assert verdicts.robust == tuple((broken > threat.eps).tolist())
    summary = result.results[-1].radii
    assert summary.area == pytest.approx(float(broken.mean()))
    assert summary.broken.value == float(broken.sort().values[11])
    assert summary.curve[0] == (0.0, 23 / 24) and summary.curve[-1][1] == 0
    rows = [row for row in result.sample_table() if row["key"].startswith("radii")]
    assert [row["broken_radius"] for row in rows] == broken.tolist()


def test_brackets_do_not_depend_on_the_batch_or_the_order():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))
    model = model.double()
    with torch.no_grad():
        model[1].weight.mul_(4)
    images = torch.rand(7, 1, 4, 4).double()
    labels = model(images).argmax(1)

    def radii(size, threat):
        result = evaluate(
            model, images, labels, threat, conditions=["radii"], batch_size=size
        )
        (verdicts,) = result.verdicts.values()
        return [b for pair in verdicts.radii for b in pair]

    for threat in (Linf(0.05), L0(2)):
        some, others = radii(7, threat), radii(2, threat)
        assert some == pytest.approx(others, abs=1e-9)


def test_a_sample_that_nothing_breaks_has_no_broken_radius():
    def constant(x):
        return torch.tensor([1.0, 0.0]) + 0 * x.flatten(1)[:, :2]

    images, labels = torch.rand(6, 1, 4, 4), torch.zeros(6, dtype=torch.long)
    result = evaluate(constant, images, labels, L2(0.5), conditions=["radii"])
    (verdicts,), (record,) = result.verdicts.values(), result.results
    assert verdicts.radii == ((0.0, None),) * 6 or all(b is None for _, b in verdicts.radii)
    assert record.radii.unbroken == 6 and record.radii.area == 4.0
    assert "6 of 6 never broken" in str(result)


class Sorted(nn.Module):
    """A model with an operation that no certificate has a rule for."""

    def forward(self, x):
        return x.flatten(1).sort(1).values[:, :2].flip(1)


def test_a_model_that_cannot_be_bounded_has_no_certified_radius_unless_asked_for():
    images, labels = torch.rand(4, 1, 2, 2), torch.zeros(4, dtype=torch.long)
    result = evaluate(Sorted(), images, labels, Linf(0.05), conditions=["radii"])
    (verdicts,) = result.verdicts.values()
    assert all(certified == 0 for certified, _ in verdicts.radii)
    with pytest.raises(NotImplementedError):
        evaluate(
            Sorted(), images, labels, Linf(0.05), conditions=["radii"], certificate="ibp"
        )


def test_a_crossing_bracket_is_an_error_that_names_the_sample(monkeypatch):
    from advnorm.evaluation import radii

    monkeypatch.setattr(
        radii, "is_certified", lambda model, x, *more, **kw: torch.ones(len(x)).bool()
    )
    model, images, labels, _ = linear()
    with pytest.raises(CertificateError, match=r"sample \d+ .*is certified up to a radius"):
        evaluate(model, images, labels, Linf(0.02), conditions=["radii"])


def test_what_another_attack_broke_in_a_smaller_ball_counts(monkeypatch):
    """A bracket is never wider than what the other conditions have shown."""
    from advnorm.evaluation import condition_names

    short = {"l2": {"radii": ("fmn-1",)}}
    monkeypatch.setattr(condition_names, "_SUITES_IN", short)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))
    with torch.no_grad():
        model[1].weight.mul_(6)
    images = torch.rand(20, 1, 4, 4)
    labels = model(images).argmax(1)
    result = evaluate(model, images, labels, L2(0.6), conditions=["apgd_ce-50"], radii=True)
    attacked, brackets = result.verdicts.values()
    by = [bool(by) for by in attacked.by]
    assert any(by)
    for broken, (_, radius) in zip(by, brackets.radii, strict=True):
        assert not broken or radius <= 0.6


def test_one_condition_a_norm_of_the_largest_radius():
    model, images, labels, _ = linear(4)
    threats = [Linf(0.01), Linf(0.02), L2(0.1)]
    result = evaluate(model, images, labels, threats, conditions=["clean"], radii=True)
    assert [r.key for r in result.results] == ["clean", "radii_linf_0.02", "radii_l2_0.1"]


@pytest.mark.parametrize("n", [1, 5, 6, 7, 25, 100])
def test_the_interval_of_a_median_has_the_largest_ranks_of_95_percent(n):
    low, high = median_ranks(n)

    def below(rank):
        return sum(comb(n, k) for k in range(rank)) / 2**n

    assert low + high == n + 1 and (low == 0 or below(low) <= 0.025)
    assert below(low + 1) > 0.025


def test_a_summary_by_hand():
    brackets = [(0.0, 0.0), (0.1, 0.4), (0.2, 0.8), (0.3, None)]
    summary = summarize_radii(brackets, diameter=2.0)
    assert summary.broken.value == 0.4 and summary.certified.value == 0.1
    assert summary.area == pytest.approx(3.2 / 4) and summary.unbroken == 1
    assert summary.certified_area == pytest.approx(0.15)
    assert summary.curve == ((0.0, 0.75), (0.4, 0.5), (0.8, 0.25))
    assert summary.broken.low == 0 and summary.broken.high is None  # too few for 95%
