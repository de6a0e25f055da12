"""Suites: several attacks in turn, the worst case a sample."""

import pytest
import torch
from torch import nn

from advnorm.attacks import ATTACKS, AttackEntry
from advnorm.evaluation import evaluate, parse_conditions
from advnorm.evaluation.condition_names import SUITES
from advnorm.threat import Linf


def problem(n=40):
    """Return a linear model on tiny images, and each sample's distance to the boundary."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(2, 16, generator=generator))
        model[1].bias.copy_(-model[1].weight.sum(1) / 2)
    images = (torch.rand(n, 1, 4, 4, generator=generator).double() - 0.5) * 0.2 + 0.5
    labels = model(images).argmax(1)
    w = (model[1].weight[1] - model[1].weight[0]).detach()
    distance = ((images.flatten(1) - 0.5) @ w).abs() / w.abs().sum()
    return model, images, labels, distance


def test_the_standard_suite_equals_the_closed_form_and_says_who_broke_what(monkeypatch):
    monkeypatch.setitem(
        SUITES, "standard", ("apgd_ce-20", "apgd_t-20", "fab_t-10", "square-50")
    )
    model, images, labels, distance = problem()
    eps = distance.median().item()
    evaluation = evaluate(model, images, labels, Linf(eps), conditions=["standard"])
    (result,) = evaluation.results
    verdicts = evaluation.verdicts[result.key]
    assert result.condition == "standard" and result.settings["apgd_ce-20.steps"] == 20
    clear = (distance - eps).abs() > 1e-6
    assert torch.equal(torch.tensor(verdicts.robust)[clear], (distance > eps)[clear])
    for robust, by in zip(verdicts.robust, verdicts.by, strict=True):
        assert (by == "") is robust
    assert set(verdicts.by) <= {"", *SUITES["standard"]} and "apgd_ce-20" in verdicts.by


def test_a_later_attack_sees_only_samples_that_are_still_robust(monkeypatch):
    seen = []

    def spy(name, breaks):
        def attack(logits_fn, clean, labels, threat, *, draws=None):
            seen.append((name, len(clean)))
            x = clean.clone()
            for row in range(min(breaks, len(clean))):  # step over the boundary
                delta = torch.sign(model[1].weight[1] - model[1].weight[0]).view(1, 4, 4)
                x[row] += threat.eps * delta * (1 - 2 * labels[row])
            return x

        return attack

    model, images, labels, _ = problem(n=10)
    for name, breaks in (("first", 4), ("second", 3), ("third", 0)):
        monkeypatch.setitem(
            ATTACKS._entries, name, AttackEntry(name, spy(name, breaks), name)
        )
    monkeypatch.setitem(SUITES, "mine", ("first", "second", "third"))
    evaluation = evaluate(model, images, labels, Linf(0.4), conditions=["mine"])
    assert seen == [("first", 10), ("second", 6), ("third", 3)]
    (verdicts,) = evaluation.verdicts.values()
    assert verdicts.by == ("first",) * 4 + ("second",) * 3 + ("",) * 3


def test_an_attack_has_the_same_draws_alone_and_in_a_suite(monkeypatch):
    starts = []

    def spy(logits_fn, clean, labels, threat, *, draws=None):
        starts.append(draws.uniform(3))
        return clean

    monkeypatch.setitem(ATTACKS._entries, "spy", AttackEntry("spy", spy, "Spy"))
    monkeypatch.setitem(SUITES, "mine", ("fgsm", "spy"))
    model, images, labels, _ = problem()
    evaluate(model, images, labels, Linf(1e-6), conditions=["spy", "mine"])
    assert torch.equal(*starts)


@pytest.mark.parametrize("name", list(SUITES))
def test_every_suite_is_made_of_known_attacks_and_takes_no_number(name):
    (condition,) = parse_conditions([name], [Linf(0.1)], (0.0, 1.0))
    assert tuple(attack.text for attack in condition.attacks) == SUITES[name]
    with pytest.raises(ValueError, match="takes no number"):
        parse_conditions([f"{name}-3"], [Linf(0.1)], (0.0, 1.0))


def test_attacks_without_a_number_take_their_published_steps():
    conditions = parse_conditions(["apgd_ce", "square", "pgd"], [Linf(0.1)], (0.0, 1.0))
    assert [condition.settings["steps"] for condition in conditions] == [100, 5000, 10]
    assert (
        "step_size" not in conditions[0].settings and "step_size" in conditions[2].settings
    )
