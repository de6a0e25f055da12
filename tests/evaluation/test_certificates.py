"""Certificates as a column, before attacks, and never against them."""

import pytest
import torch
from torch import nn

import advnorm
from advnorm.attacks import ATTACKS, AttackEntry
from advnorm.data import Batch
from advnorm.evaluation import parse_conditions, run_condition
from advnorm.evaluation.certificates import CertificateError, refuse_broken_certificates
from advnorm.evaluation.conditions import certify_first
from advnorm.records import Accuracy, Result, ThreatRecord, Verdicts
from advnorm.threat import Linf


@pytest.fixture(scope="module")
def problem():
    """Train a small network on two noisy patterns: some samples certify, some break."""
    torch.manual_seed(0)
    labels = torch.arange(120) % 2
    images = (0.5 + 0.16 * (2 * labels - 1)).view(-1, 1, 1, 1) + 0.22 * torch.randn(
        120, 1, 3, 3
    )
    images = images.clamp(0, 1)
    model = nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model, images, labels


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown"])
def test_certificates_first_give_the_same_verdicts_with_fewer_attacks(problem, method):
    settings = {"threat": Linf(0.05), "conditions": ["pgd-10", method]}
    plain = advnorm.evaluate(*problem, **settings)
    first = advnorm.evaluate(*problem, **settings, certificate=method)
    alone, key = first.verdicts[f"{method}_linf_0.05"], "pgd-10_linf_0.05"
    assert first.verdicts[key].robust == plain.verdicts[key].robust
    assert first.verdicts[key].by == plain.verdicts[key].by
    assert first.verdicts[key].certified == alone.robust == alone.certified
    assert 10 < sum(alone.robust) <= sum(plain.verdicts[key].robust) < 120
    assert all(
        robust or not sure
        for sure, robust in zip(alone.robust, plain.verdicts[key].robust, strict=True)
    )
    assert plain.verdicts[key].certified == ()


def test_certified_samples_are_not_attacked(problem, monkeypatch):
    seen, (model, images, labels) = [], problem

    def idle(logits_fn, clean, labels, threat, *, draws):
        seen.append(len(clean))
        return clean

    monkeypatch.setitem(ATTACKS._entries, "idle", AttackEntry("idle", idle, "Idle"))
    conditions = parse_conditions(["idle"], [Linf(0.05)], (0.0, 1.0))
    (condition,) = certify_first(conditions, "crown")
    batch = Batch(images, labels, torch.arange(120))
    verdicts = run_condition(model, [batch], condition, total=120)
    right = (model(images).argmax(1) == labels).tolist()
    assert list(verdicts.robust) == right and any(verdicts.certified)
    assert seen == [sum(right) - sum(verdicts.certified)]


def result(attack, eps, **changes):
    facts = {"weights": "best", "data": "digits", "seed": 0, "seconds": 0.0} | changes
    return Result(
        condition=attack,
        kind="certificate" if attack == "crown" else "attack",
        threat=ThreatRecord(norm="linf", eps=eps),
        accuracy=Accuracy(correct=1, n=2),
        **facts,
    )


PROOF = (result("crown", 0.1), Verdicts(samples=(0, 1), robust=(True, False), by=("", "")))


def broken(sample, eps, **changes):
    by = tuple("pgd-5" if s == sample else "" for s in (0, 1))
    robust = tuple(not name for name in by)
    return result("pgd-5", eps, **changes), Verdicts(samples=(0, 1), robust=robust, by=by)


@pytest.mark.parametrize("eps", [0.1, 0.05])
def test_an_attack_on_a_covered_sample_fails_loudly(eps):
    with pytest.raises(CertificateError, match="broke sample 0"):
        refuse_broken_certificates([PROOF, broken(0, eps)])


@pytest.mark.parametrize(
    "other",
    [
        broken(1, 0.1),
        broken(0, 0.2),
        broken(0, 0.1, weights="last"),
        broken(0, 0.1, data="x"),
    ],
    ids=["uncovered", "larger", "weights", "data"],
)
def test_what_a_certificate_does_not_speak_of_is_no_contradiction(other):
    refuse_broken_certificates([PROOF, other])


def test_an_unknown_certificate_says_which_there_are(problem):
    with pytest.raises(ValueError, match="crown-ibp"):
        advnorm.evaluate(*problem, Linf(0.1), certificate="crwn")


def test_results_say_where_a_certificate_alone_decided(problem):
    model, images, labels = problem
    names = ["clean", "ibp", "pgd-2"]
    evaluation = advnorm.evaluate(
        model, images, labels, Linf(0.05), conditions=names, certificate="ibp"
    )
    kinds = {result.condition: result.kind for result in evaluation.results}
    assert kinds == {"clean": "clean", "ibp": "certificate", "pgd-2": "attack"}
