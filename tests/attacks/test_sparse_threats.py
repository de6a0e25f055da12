"""Attacks in L1 and L0 balls: projections, Auto-PGD and Square against closed forms."""

import pytest
import torch
from scipy.optimize import linprog
from torch import nn

import advnorm
from advnorm.attacks import NonFiniteGradientError, apgd_ce, apgd_t, parse_attack, square
from advnorm.attacks.sparse_projections import project_l0, project_l1
from advnorm.attacks.square_l1 import sharp_bumps
from advnorm.draws import Draws
from advnorm.evaluation import evaluate, parse_conditions
from advnorm.threat import L0, L1, Linf


def planes(seed, d=7):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(1, d, generator=generator).double()
    w = torch.randn(1, d, generator=generator).double()
    w[0, seed % d] = 0
    b = torch.randn(1, generator=generator).double()
    return x, w, b


@pytest.mark.parametrize("seed", range(15))
def test_the_l1_projection_onto_a_plane_is_that_of_a_solver(seed):
    x, w, b = planes(seed)
    point = project_l1(x, w, b, (0.0, 1.0))
    gap = float(b - (w * x).sum())
    both = torch.cat([w, -w], 1).numpy()  # the change in positive and negative parts
    ends = [(0, 1 - float(v)) for v in x[0]] + [(0, float(v)) for v in x[0]]
    exact = linprog([1.0] * 14, A_eq=both, b_eq=[gap], bounds=ends)
    if exact.success:
        assert float((point - x).abs().sum()) == pytest.approx(exact.fun, abs=1e-7)
        assert float((w * point).sum()) == pytest.approx(float(b), abs=1e-9)
    else:
        best = (torch.where(w * gap > 0, 1.0, 0.0) * w).sum()  # the corner furthest there
        assert abs(float(best - b)) <= abs(float((w * point).sum() - b)) + 1e-9


@pytest.mark.parametrize("seed", range(15))
def test_the_l0_projection_reaches_the_plane_with_the_fewest_changes(seed):
    x, w, b = planes(seed)
    point = project_l0(x, w, b, (0.0, 1.0))
    gap = b - (w * x).sum()
    gains = torch.where(w * gap > 0, 1 - x, x) * w.abs()
    total = gains.sort(descending=True).values.cumsum(1)
    reaches = (total >= gap.abs()).nonzero()
    fewest = int(reaches[0, 1]) + 1 if len(reaches) else int((gains > 0).sum())
    assert int((point != x).sum()) == fewest


def linear(seed, n=60):
    """Return a linear model of two classes, and how far each image's boundary is in L1."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(2, 36, generator=generator))
        model[1].bias.copy_(-model[1].weight.sum(1) / 2)
    clean = 0.5 + 0.2 * (torch.rand(n, 1, 6, 6, generator=generator).double() - 0.5)
    labels = model(clean).argmax(1)
    w = (model[1].weight[1] - model[1].weight[0]).detach().expand(n, -1)
    b = (model[1].bias[0] - model[1].bias[1]).detach().expand(n)
    nearest = project_l1(clean.flatten(1), w, b, (0.0, 1.0))
    return model, clean, labels, (nearest - clean.flatten(1)).abs().sum(1)


@pytest.mark.parametrize("attack", [apgd_ce, apgd_t])
@pytest.mark.parametrize("seed", range(3))
def test_auto_pgd_breaks_what_can_be_broken_in_l1(attack, seed):
    model, clean, labels, exact = linear(seed)
    threat = L1(float(exact.median()))
    draws = Draws.of(0, torch.arange(len(clean)))
    x = attack(model, clean, labels, threat, steps=60, draws=draws)
    broken = model(x).argmax(1) != labels
    assert threat.contains(x, clean).all()
    assert broken[exact < 0.97 * threat.eps].all() and not broken[exact > threat.eps].any()


def test_auto_pgd_in_l1_does_not_depend_on_the_batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.Tanh(), nn.Linear(12, 4))
    clean, rows = torch.rand(12, 1, 6, 6).double(), torch.tensor([7, 3])
    model = model.double()
    labels, draws = model(clean).argmax(1), Draws.of(0, torch.arange(12))
    together = apgd_t(model, clean, labels, L1(0.5), steps=12, draws=draws)
    some = apgd_t(model, clean[rows], labels[rows], L1(0.5), steps=12, draws=draws[rows])
    torch.testing.assert_close(some, together[rows], rtol=0, atol=1e-9)


def test_auto_pgd_in_l1_stops_at_the_first_success_of_the_last_phase():
    model, clean, labels, exact = linear(0)
    sizes = []

    def counted(x):
        sizes.append(len(x))
        return model(x)

    apgd_ce(counted, clean, labels, L1(2 * float(exact.max())), steps=20)
    assert sizes[:14] == [60] * 14  # 6 steps and a last look, in each of two wider balls
    assert sum(sizes[14:]) < 3 * 60


def test_auto_pgd_in_l1_reports_a_gradient_that_is_not_finite():
    def logits_fn(x):
        root = (x - x.detach()).sqrt() if x.requires_grad else 0 * x
        return torch.stack([1 + root.flatten(1).sum(1), x.flatten(1).sum(1) / 1e3], 1)

    clean, labels = torch.full((2, 9), 0.5), torch.zeros(2, dtype=torch.long)
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        apgd_ce(logits_fn, clean, labels, L1(1.0), steps=10)


def test_the_pattern_of_a_square_in_l1_has_length_one_and_falls_fast():
    pattern = sharp_bumps(5, torch.float64, torch.device("cpu"))
    assert float(pattern.abs().sum()) == pytest.approx(1)
    centre, edge = pattern[3, 2], pattern[3, 0]  # 1 + 1/16 + 1/81 beside 1/81
    assert float(centre / edge) == pytest.approx((1 + 1 / 16 + 1 / 81) * 81)


def test_square_in_l1_stays_inside_and_breaks_many():
    model, clean, labels, exact = linear(1)
    threat = L1(3 * float(exact.median()))
    draws = Draws.of(0, torch.arange(len(clean)))
    x = square(model, clean, labels, threat, steps=200, horizon=200, draws=draws)
    broken = model(x).argmax(1) != labels
    assert threat.contains(x, clean).all() and not broken[exact > threat.eps].any()
    assert broken.double().mean() > 0.5


@pytest.mark.parametrize("threat", [L1(0.8), L0(2)], ids=str)
@pytest.mark.parametrize("name", ["fgsm", "bim-10", "pgd-10", "fmn-20", "quick"])
def test_an_evaluation_knows_the_sparse_norms(threat, name):
    model, clean, labels, _ = linear(2)
    result = evaluate(model, clean, labels, threat, conditions=[name], keep="adversarial")
    (key,) = result.verdicts
    assert key == f"{name}_{threat.name}_{threat.eps:g}"
    assert threat.contains(result.adversarial[key], clean).all()
    assert result.results[0].accuracy.fraction < 1


def test_suites_have_the_attacks_of_the_norm():
    def attacks(threat):
        (condition,) = parse_conditions(["standard"], [threat], (0.0, 1.0))
        return [attack.text for attack in condition.attacks]

    assert attacks(L1(12)) == ["apgd_ce-100x5", "apgd_t-100", "fab_t-100", "square-5000"]
    assert attacks(L0(20)) == ["sigma_zero-1000"]
    assert attacks(Linf(0.1))[0] == "apgd_ce-100"


@pytest.mark.parametrize(
    ("name", "threat", "words"),
    [
        ("apgd_ce-10", L0(3), "apgd_ce searches linf or l2 or l1 balls only, not l0"),
        ("cw", L1(1), "cw searches l2 balls only, not l1"),
        ("ddn-10", L1(1), "ddn searches l2 balls only, not l1"),
        ("sigma_zero-10", L1(1), "sigma_zero searches l0 balls only, not l1"),
        ("hop_skip_jump-2", L1(1), "hop_skip_jump searches linf or l2 balls only"),
        ("square-10", L0(1), "square searches linf or l2 or l1 balls only, not l0"),
        ("crown", L1(1), "certificates bound a model in linf and l2 balls, not in l1"),
        ("ibp", L0(1), "certificates bound a model in linf and l2 balls, not in l0"),
    ],
)
def test_what_does_not_know_a_norm_says_so(name, threat, words):
    model, clean, labels, _ = linear(0, n=4)
    with pytest.raises(ValueError, match=words):
        evaluate(model, clean, labels, threat, conditions=[name])


def test_certificates_and_audits_refuse_the_sparse_norms():
    model, clean, labels, _ = linear(0, n=4)
    with pytest.raises(ValueError, match="not in l1: use one of these norms"):
        advnorm.certify(model, clean, labels, L1(1))
    with pytest.raises(ValueError, match="not in l0"):
        evaluate(model, clean, labels, L0(1), conditions=["fgsm"], certificate="ibp")
    with pytest.raises(ValueError, match="linf and l2 balls, not of l1"):
        advnorm.audit(model, clean, labels, L1(1))


def test_a_radius_of_more_features_than_an_image_has_is_refused():
    model, clean, labels, _ = linear(0, n=4)
    with pytest.raises(ValueError, match="larger than the distance"):
        evaluate(model, clean, labels, L0(37), conditions=["fgsm"])
    with pytest.raises(ValueError, match="larger than the distance"):
        evaluate(model, clean, labels, L1(36.1), conditions=["fgsm"])


def test_names_of_the_new_attacks_are_read():
    assert parse_attack("fmn").steps == 1000 and parse_attack("ddn-50").steps == 50
