"""Masked models are flagged, or broken by decisions; sound models raise no flag."""

import re
from copy import deepcopy
from typing import ClassVar

import pytest
import torch
from masked_models import MASKED, Memory, Wrapped
from sound_models import zoo
from torch import nn
from torch.nn import functional as F

from advnorm.attacks import hop_skip_jump
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation import audit, evaluate
from advnorm.evaluation.checks import probe, slopes
from advnorm.evaluation.checks.history import History
from advnorm.evaluation.checks.memory import remembers
from advnorm.threat import L2, THREATS, Linf

EPS = 0.15
FLAGS = {
    "decoy where gradients are enabled": "grad_mode_dependent",
    "decoy where the input requires grad": "grad_mode_dependent",
    "detached, small leak": "wrong_gradients",
    "negated gradients": "wrong_gradients",
    "random gradients": "wrong_gradients",
    "rounded input, decoy leaks": "rugged_scores",
    "rounded input, mean leaks": "rugged_scores",
    "ripple 0.05 sin(400 x)": "rugged_scores",
    "call counter, decoy": "grad_mode_dependent",
    "call counter, coarse after 40 calls": "stateful",
    "logits x 1e-38": "tiny_logits",
    "hashed scores, decoy gradients": "uninformative_scores",
    "hashed scores, random gradients": "uninformative_scores",
    "smooth scores without information": "uninformative_scores",
    "memory of queries": "stateful",
    "patient memory of queries": "stateful",
}
"""The flag that names what each model does; others may be raised beside it."""
REMEMBER = {"call counter, coarse after 40 calls", "memory of queries"}
REMEMBER |= {"patient memory of queries"}
"""Each attack meets another model: no number of theirs is worth anything."""


@pytest.fixture
def plain(trained):
    return deepcopy(trained("digits.standard"))


@pytest.fixture
def samples(digits_test):
    images, labels = digits_test
    return images[:60], labels[:60]


def flags(results):
    texts = (flag for result in results for flag in result.flags)
    return {re.match(r"audit, (\w+):", text)[1] for text in texts}


def test_every_masked_model_has_a_flag_of_its_own():
    assert FLAGS.keys() == MASKED.keys()


@pytest.mark.parametrize("name", MASKED)
def test_the_default_evaluation_flags_a_masked_model(name, plain, samples):
    images, labels = samples
    count = 4 if "memory" in name else 60
    attacks = ["pgd-20"] if "memory" in name else ["fgsm", "pgd-50"]
    results = evaluate(
        MASKED[name](plain), images[:count], labels[:count], Linf(EPS), conditions=attacks
    ).results
    assert FLAGS[name] in flags(results)
    if name not in REMEMBER:
        base = evaluate(plain, images, labels, Linf(EPS), conditions=["pgd-50"]).results[0]
        assert results[-1].accuracy.fraction <= base.accuracy.fraction + 0.15
        assert "square-1000 and hop_skip_jump-20 count too" in results[-1].notes[-1]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(
    "name", ["hashed scores, decoy gradients", "hashed scores, random gradients"]
)
def test_scores_and_gradients_that_both_lie_do_not_help_under_the_standard_suite(
    name, plain, samples
):
    """AutoAttack's suite alone leaves most samples; decisions leave what is left."""
    images, labels = samples
    masked = evaluate(
        MASKED[name](plain), images[:40], labels[:40], Linf(EPS), conditions=["standard"]
    ).results[0]
    alone = float(re.search(r"alone leaves ([0-9.]+)%", masked.notes[-1])[1]) / 100
    assert alone > 0.5 and masked.accuracy.fraction < 0.3
    assert "uninformative_scores" in flags([masked])


@pytest.mark.parametrize("name", ["patient memory of queries", "memory of queries"])
def test_an_audit_flags_a_memory_of_queries(name, plain, samples):
    images, labels = samples
    record = audit(
        MASKED[name](plain), images[:8], labels[:8], Linf(EPS), checks=["stateful"]
    )
    assert record.flagged == ("stateful",), record


def test_an_audit_counts_decisions_where_scores_say_nothing(plain, samples):
    checks = ["uninformative_scores", "decisions_stronger", "false_robustness"]
    masked = MASKED["smooth scores without information"](plain)
    record = audit(masked, *samples, Linf(EPS), checks=checks, suite=["apgd_ce-5"])
    assert "decisions_stronger" in record.flagged
    assert record.strong.fraction < 0.3 < 0.8 < record.weak.fraction


class GlobalMemory(Wrapped):
    """Its memory is no part of it: a copy of the model shares it."""

    seen: ClassVar[list[int]] = []

    def forward(self, x):
        self.seen.append(len(x))
        return self.net(x if len(self.seen) < 4 else (x * 2).round() / 2)


def test_a_memory_outside_of_the_model_shows_too(plain, samples):
    images, labels = samples
    model = GlobalMemory(plain).eval()
    GlobalMemory.seen.clear()
    history = History(model, Batch(images, labels, torch.arange(60)), Linf(EPS))
    for _ in range(5):
        model(images)
    change = history.change()
    assert remembers(change).flagged and change.fresh == 0


def test_a_model_without_a_memory_has_no_history(plain, samples):
    images, labels = samples
    plain.eval()
    history = History(plain, Batch(images, labels, torch.arange(60)), Linf(EPS))
    for _ in range(5):
        plain(images)
    finding = remembers(history.change())
    assert not finding.flagged and 0.5 < finding.numbers["slope"] < 2


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.5)])
def test_slopes_of_a_linear_model_are_its_weights(threat):
    """Oracle: m(x) = (w_a - w_b) x, whose slope along v is (w_a - w_b) v anywhere."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    images, draws = torch.rand(5, 3, 2, 2), Draws.of(0, torch.arange(5))
    slope = slopes.measure(model, images, threat, draws)
    assert slope.double
    for measured in (slope.random, *slope.larger):
        torch.testing.assert_close(measured, slope.random_by_gradient, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slope.own, slope.own_by_gradient, rtol=1e-5, atol=1e-6)
    pair = model(images + 0 * images).topk(2, 1).indices
    weight = model[1].weight.detach().double()
    normal = weight[pair[:, 0]] - weight[pair[:, 1]]
    length = normal.norm(dim=1) * 12**0.5  # along itself, scaled like a vector of signs
    torch.testing.assert_close(slope.own[:, 0], length, rtol=1e-4, atol=1e-5)


def test_a_model_that_cannot_be_cast_is_measured_in_its_own_precision(plain, samples):
    class Single(Wrapped):
        def forward(self, x):
            return self.net(x.float()).float()

        def __deepcopy__(self, memo):
            raise TypeError("not me")

    images, labels = samples
    record = audit(Single(plain), images, labels, Linf(EPS), checks=["wrong_gradients"])
    assert record.flagged == () and record.checks[0].numbers["double precision"] == 0
    masked = Single(MASKED["negated gradients"](plain))
    record = audit(masked, images, labels, Linf(EPS), checks=["wrong_gradients"])
    assert record.flagged == ("wrong_gradients",)


def test_a_radius_of_zero_is_no_reason_for_a_flag(plain, samples):
    batch = Batch(*samples, torch.arange(60))
    checks = probe(plain, batch, Linf(0.0))
    assert [check.name for check in checks if check.status == "flagged"] == []


class Autocast(Wrapped):
    """Computes in bfloat16 inside, whatever it is given."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(x).to(x.dtype)


class Dodging(Wrapped):
    """Answers something else in double precision, so that nothing is measured there."""

    def forward(self, x):
        return self.net(x) + (
            x.flatten(1).sum(1, keepdim=True) if x.dtype.itemsize > 4 else 0
        )


SOUND = {
    "function": lambda net: net.eval().__call__,
    "half": lambda net: net.half(),
    "bfloat16": lambda net: net.bfloat16(),
    "double": lambda net: net.double(),
    "another answer in double": Dodging,
}


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_model_in_any_precision_raises_no_flag(kind, plain, samples):
    results = evaluate(SOUND[kind](plain), *samples, Linf(EPS)).results
    assert flags(results) == set(), results


def test_autocast_inside_of_a_model_is_flagged(plain, samples):
    """Its answers are constant in steps of 1/256 of a pixel, which no gradient shows."""
    results = evaluate(Autocast(plain), *samples, Linf(EPS), conditions=["fgsm"]).results
    assert "wrong_gradients" in flags(results)


@pytest.mark.parametrize("kind", ["function", "half", "double", "another answer in double"])
def test_wrong_gradients_show_in_any_precision(kind, plain, samples):
    model = SOUND[kind](MASKED["negated gradients"](plain))
    results = evaluate(model, *samples, Linf(EPS), conditions=["fgsm"]).results
    assert "wrong_gradients" in flags(results)


def test_results_contradict_each_other_where_one_step_is_better(plain, digits_test):
    model = MASKED["ripple 0.05 sin(400 x)"](plain)
    images, labels = digits_test
    results = evaluate(
        model, images, labels, Linf(EPS), conditions=["fgsm", "pgd-50"]
    ).results
    assert all("one_step_stronger" in flags([result]) for result in results)


@pytest.mark.parametrize("family", ["mlp"])
def test_sound_models_of_every_norm_raise_no_flag(family):
    count = 0
    for item in zoo([family]):
        results = evaluate(item.model, item.images, item.labels, Linf(8 / 255))
        assert flags(results.results) == set(), (item.name, results)
        count += 1
    assert count >= 12


@pytest.mark.slow
def test_200_evaluations_of_sound_models_raise_no_flag():
    count = 0
    for item in zoo():
        for eps, norm in ((8 / 255, "linf"), (0.5, "l2")):
            evaluation = evaluate(item.model, item.images, item.labels, THREATS[norm](eps))
            assert flags(evaluation.results) == set(), (item.name, norm, evaluation)
            count += 1
    assert count >= 200


# HopSkipJump


def linear(weight, bias=0.0):
    """Return a model of two classes whose boundary is weight . x + bias = 0."""
    weight = torch.as_tensor(weight)

    def logits(images):
        margin = images.flatten(1) @ weight + bias
        return torch.stack([margin, -margin], 1)

    return logits


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_decisions_reach_the_nearest_adversarial_image_of_a_linear_model(norm):
    """Oracle: |w.x + b| / |w|_1 in Linf and / |w|_2 in L2, away from the bounds."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(12, generator=generator, dtype=torch.float64)
    clean = 0.4 + 0.2 * torch.rand(20, 12, generator=generator, dtype=torch.float64)
    model = linear(weight, -float(weight.sum()) * 0.5)
    labels = model(clean).argmax(1)
    margin = (clean @ weight - weight.sum() * 0.5).abs()
    nearest = margin / (weight.norm(1) if norm == "linf" else weight.norm())
    for factor, share in ((1.3, 1.0), (0.95, 0.0)):
        broken = 0
        for i in range(len(clean)):
            threat = (Linf if norm == "linf" else L2)(float(factor * nearest[i]))
            one = slice(i, i + 1)
            draws = Draws.of(0, torch.tensor([i]))
            x = hop_skip_jump(model, clean[one], labels[one], threat, draws=draws)
            assert bool(threat.contains(x, clean[one]).all())
            broken += int(model(x).argmax(1) != labels[one])
        assert broken == share * len(clean), (factor, broken)


def test_only_decisions_are_seen(plain, samples):
    """The same images are found whatever the scores are, as long as decisions are."""
    images, labels = samples
    plain.eval()

    def hard(x):
        return F.one_hot(plain(x).argmax(1), 10).float()

    draws = Draws.of(0, torch.arange(8))
    a = hop_skip_jump(plain, images[:8], labels[:8], Linf(EPS), steps=4, draws=draws)
    b = hop_skip_jump(hard, images[:8], labels[:8], Linf(EPS), steps=4, draws=draws)
    assert torch.equal(a, b)


def test_a_verdict_of_decisions_does_not_depend_on_the_batch(plain, samples):
    images, labels = samples
    whole, split = (
        evaluate(
            plain,
            images,
            labels,
            Linf(EPS),
            conditions=["hop_skip_jump-4"],
            batch_size=size,
        ).verdicts["hop_skip_jump-4_linf_0.15"]
        for size in (60, 7)
    )
    assert whole.robust == split.robust


# Ties


def test_a_tie_between_classes_is_never_right():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 4) + 0 * x.flatten(1).sum(1, keepdim=True)

    images, labels = torch.rand(8, 1, 4, 4), torch.zeros(8, dtype=torch.long)
    evaluation = evaluate(
        Constant(), images, labels, Linf(0.1), conditions=["clean", "pgd-5"]
    )
    assert [result.accuracy.correct for result in evaluation.results] == [0, 0]
    assert set(evaluation.verdicts["clean"].predictions) == {1}


def test_an_image_on_the_boundary_is_broken():
    """A ball that reaches a tie, and no further, holds an image that is not right."""
    model = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    evaluation = evaluate(
        model, torch.tensor([[0.25]]), [0], Linf(0.25, bounds=(-1, 1)), conditions=["fgsm"]
    )
    assert evaluation.results[0].accuracy.correct == 0


def test_the_memory_is_what_its_docstring_says(plain, samples):
    images, _ = samples
    model = Memory(plain.eval())
    model(images[:4])
    again = model((images[:4] + 0.2 * torch.rand_like(images[:4])).clamp(0, 1))
    assert torch.equal(again.argmax(1), plain(images[:4]).argmax(1))
