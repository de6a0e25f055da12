"""The alarm of false robustness: held-out PGD against a stronger attack."""

from dataclasses import replace

import pytest
from torch import nn

from advnorm.recipe import override
from advnorm.records import Accuracy, Verdicts
from advnorm.runs import load_trained
from advnorm.training import (
    build_experiment,
    guards,
    loop,
    train,
)
from advnorm.training.stop import Stop
from advnorm.training.validate import FEW, Validated, validate


class Times(nn.Module):
    def forward(self, x):
        return 1e5 * x


@pytest.mark.parametrize("masked", [True, False])
def test_masked_gradients_raise_the_alarm_and_sound_ones_do_not(tiny, tmp_path, masked):
    """Logits x 100,000 leave PGD without a slope, and the stronger attack with its own."""
    recipe = override(
        tiny, ["data.train=600", "objective.name=standard", "epochs=6", "threat.eps=0.2"]
    )
    run, experiment = (
        train(recipe, tmp_path / "run"),
        build_experiment(recipe, root=None, device="cpu"),
    )
    model, _, _ = load_trained(run, recipe, experiment.data, weights="last", warnings=[])
    validated = validate(
        replace(experiment, model=nn.Sequential(model, Times()) if masked else model),
        Stop(),
    )
    assert len(validated.strong.samples) == min(FEW, 30)
    alarms = guards.alarms(None, *validated, classes=10)
    assert [("false robustness" in alarm) for alarm in alarms] == [True] * masked
    assert not any(epoch.alarms for epoch in run.epochs())


def verdicts(robust, first=0):
    count = len(robust)
    labels = tuple(i % 3 for i in range(count))
    samples = tuple(range(first, first + count))
    return Verdicts(
        samples=samples, labels=labels, predictions=labels, robust=tuple(robust)
    )


@pytest.mark.parametrize(
    "strong, rung", [(10, False), (6, False), (5, False), (4, True), (0, True)]
)
def test_the_gap_counts_the_same_samples_and_must_halve_what_stood(strong, rung):
    """10 of the 20 samples under both attacks stand under PGD; the other 20 do not count."""
    clean = verdicts([True] * 40)
    robust = verdicts([True] * 10 + [False] * 10 + [True] * 20)
    few = verdicts([True] * strong + [False] * (20 - strong))
    assert bool(guards.alarms(None, clean, robust, few, classes=3)) is rung


def test_a_small_gap_is_no_alarm():
    clean, robust = verdicts([True] * 50), verdicts([True] * 10 + [False] * 40)
    assert guards.alarms(None, clean, robust, verdicts([False] * 50), classes=3) == ()


def robust_on_first(right, count=40):
    labels = tuple(i % 4 for i in range(count))
    robust = (True,) * right + (False,) * (count - right)
    return Verdicts(labels=labels, predictions=labels, samples=labels, robust=robust)


@pytest.mark.parametrize(
    "objective, rung", [("pgd", True), ("trades", True), ("standard", False)]
)
def test_overfitting_to_the_training_attack_is_on_record(
    tiny, tmp_path, monkeypatch, objective, rung
):
    monkeypatch.setattr(
        loop,
        "validate",
        lambda experiment, stop: Validated(robust_on_first(40), robust_on_first(0)),
    )
    changes = [f"objective.name={objective}", "epochs=4", "threat.eps=0.001"]
    run = train(override(tiny, changes), tmp_path / "run")
    alarms = [alarm for epoch in run.epochs() for alarm in epoch.alarms]
    assert any("catastrophic overfitting" in alarm for alarm in alarms) is rung
    ramped = override(tiny, [*changes, "threat.schedule={kind: ramp, last: 9}"])
    assert not any(e.alarms for e in train(ramped, tmp_path / "ramped").epochs())


def test_a_gap_alone_is_no_alarm_where_half_of_the_robustness_is_real():
    train_ = Accuracy(correct=40, n=40)
    assert guards.alarms(train_, robust_on_first(40), robust_on_first(24), classes=4) == ()
    assert (
        len(guards.alarms(train_, robust_on_first(40), robust_on_first(19), classes=4)) == 1
    )
