"""The accuracy curve of one run equals separate runs of each step count."""

import pytest
import torch
from torch import nn

from advnorm.attacks.names import step_counts
from advnorm.evaluation import evaluate
from advnorm.records import Result, Verdicts
from advnorm.runs.condition import worst_of
from advnorm.threat import THREATS, Linf

STEPS = (1, 2, 5, 10, 20, 30)
SETTINGS = [
    ("linf", 0.05, "+step=0.015"),
    ("linf", 0.05, "+random+step=0.015"),
    ("l2", 0.2, "+least_likely+step=0.05"),
    ("l2", 0.2, "+clean=0.5+step=0.1"),
    ("linf", 0.1, "x3+step=0.05"),
]


def separate(problem, norm, eps, options):
    """Return for each sample whether it is right after each of the step counts."""
    model, images, labels = problem
    names = [f"pgd-{steps}{options}" for steps in STEPS]
    evaluation = evaluate(model, images, labels, THREATS[norm](eps), conditions=names)
    return torch.tensor([v.robust for v in evaluation.verdicts.values()]).T


@pytest.mark.parametrize("norm, eps, options", SETTINGS)
def test_the_last_iterates_are_those_of_separate_runs(five_classes, norm, eps, options):
    model, images, labels = five_classes
    name = f"pgd-1..30{options}+last"
    evaluation = evaluate(model, images, labels, THREATS[norm](eps), conditions=[name])
    (result,), (verdicts,) = evaluation.results, evaluation.verdicts.values()
    expected = separate(five_classes, norm, eps, options)
    assert torch.equal(torch.tensor(verdicts.curve), expected)
    assert {n: a.correct for n, a in result.curve.items()} == dict(
        zip(STEPS, expected.sum(0).tolist(), strict=True)
    )
    assert result.accuracy == result.curve[30] and result.settings["iterate"] == "last"


@pytest.mark.parametrize("norm, eps, options", SETTINGS)
def test_the_worst_so_far_is_that_of_all_shorter_runs(five_classes, norm, eps, options):
    model, images, labels = five_classes
    name = f"pgd-1..30{options}"
    evaluation = evaluate(model, images, labels, THREATS[norm](eps), conditions=[name])
    (verdicts,) = evaluation.verdicts.values()
    expected = separate(five_classes, norm, eps, options).cummin(1).values
    assert torch.equal(torch.tensor(verdicts.curve), expected)
    assert list(verdicts.robust) == expected[:, -1].tolist()
    fooled = torch.tensor(verdicts.predictions) != labels
    assert torch.equal(fooled, ~expected[:, -1])
    assert [by != "" for by in verdicts.by] == (~expected[:, -1]).tolist()


def test_the_two_meanings_differ_where_a_path_comes_back():
    """The wrong class wins within 0.02 of 0.53; steps of 0.06 go back and forth over it."""

    class Ridge(nn.Module):
        def forward(self, x):
            lead = 1 - 50 * (x - 0.53).abs().sum(1)
            return torch.stack([torch.zeros_like(lead), lead], 1)

    images, labels = torch.full((1, 1), 0.4).double(), torch.zeros(1).long()
    names = ["pgd-1..10+clean+step=0.06", "pgd-1..10+clean+step=0.06+last"]
    evaluation = evaluate(Ridge(), images, labels, Linf(0.2), conditions=names)
    worst_so_far, last = evaluation.verdicts.values()
    assert worst_so_far.curve == ((True, False, False, False),)
    assert last.curve == ((True, False, True, False),)


def test_broken_samples_are_dropped_and_steps_are_not_repeated():
    sizes = []

    class Spy(nn.Linear):
        def forward(self, x):
            sizes.append((len(x), x.requires_grad))
            return super().forward(x)

    model = Spy(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        model.bias.copy_(torch.tensor([-0.5, 0.5]))
    images = torch.tensor([[0.515], [0.555], [0.9]])  # broken after 2 and 6 steps, never
    name = "pgd-1..20+clean+step=0.01"
    evaluation = evaluate(
        model, images, torch.zeros(3).long(), Linf(0.2), conditions=[name]
    )
    curve = next(iter(evaluation.verdicts.values())).curve
    assert curve == (
        (True, False, False, False, False),
        (True,) * 3 + (False,) * 2,
        (True,) * 5,
    )
    searched = [size for size, gradient in sizes if gradient][2:]  # after two looks
    assert searched == [3] * 2 + [2] * 8 + [1] * 10


def test_counts_are_the_ends_and_a_series_between():
    assert step_counts(10, 2000) == (10, 20, 50, 100, 200, 500, 1000, 2000)
    assert step_counts(7, 60) == (7, 10, 20, 50, 60)


def test_a_curve_survives_its_record(five_classes):
    model, images, labels = five_classes
    evaluation = evaluate(model, images, labels, Linf(0.05), conditions=["pgd-1..5"])
    (result,), (verdicts,) = evaluation.results, evaluation.verdicts.values()
    assert Result.model_validate_json(result.model_dump_json()) == result
    assert Verdicts.model_validate_json(verdicts.model_dump_json()) == verdicts


def test_the_worst_of_two_branches_is_the_worst_at_each_count():
    sides = [((True, True), (True, False)), ((True, False), (True, True))]
    branches = [
        Verdicts(
            samples=(0, 1),
            labels=(0, 0),
            predictions=tuple(0 if row[-1] else 1 for row in side),
            robust=tuple(row[-1] for row in side),
            by=("", ""),
            curve=side,
        )
        for side in sides
    ]
    assert worst_of(branches).curve == ((True, False), (True, False))


def test_certified_samples_are_robust_at_every_count(five_classes):
    model, images, labels = five_classes
    names = ["pgd-1..10", "pgd-1..10+last"]
    settings = {"threat": Linf(0.01), "conditions": names}
    plain = evaluate(model, images, labels, **settings)
    spared = evaluate(model, images, labels, certificate="ibp", **settings)
    for key, verdicts in spared.verdicts.items():
        assert 0 < sum(verdicts.certified) < 60
        assert verdicts.curve == plain.verdicts[key].curve
