"""Adversarial examples of one model, tested on others."""

import pytest
import torch
from torch import nn

import advnorm
from advnorm.draws import Draws
from advnorm.evaluation.conditions import attack_search
from advnorm.threat import Linf


def linear(seed, scale=1.0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
    with torch.no_grad():
        model[1].weight.mul_(scale)
    return model


def problem(count=60):
    images = torch.rand(count, 1, 4, 4, dtype=torch.float64)
    return images, linear(0)(images).argmax(1)


@pytest.mark.parametrize("attack", ["pgd-5", "pgd-3x2", "bim-4", "quick"])
def test_where_source_and_target_are_one_it_is_the_white_box_evaluation(attack):
    images, labels = problem()
    models = {"a": linear(0), "b": linear(1)}
    matrix = advnorm.evaluation.transfer(
        models, models, images, labels, Linf(0.05), attack=attack, seed=3, batch_size=17
    )
    for number, model in enumerate(models.values()):
        alone = advnorm.evaluate(
            model, images, labels, Linf(0.05), conditions=["clean", attack], seed=3
        )
        clean, attacked = (result.accuracy for result in alone.results)
        assert matrix.accuracies[number][number] == attacked
        assert matrix.clean[number] == clean
        assert matrix.settings == alone.results[1].settings


def test_every_target_is_tested_on_every_attacked_sample():
    """By hand: one BIM on all samples, also those that the source gets wrong."""
    images, labels = problem()
    source, target = linear(1), linear(0)
    wrong = source(images).argmax(1) != labels
    assert wrong.any() and not wrong.all()
    matrix = advnorm.evaluation.transfer(
        {"s": source}, {"t": target}, images, labels, Linf(0.3), attack="bim-10"
    )
    (bim,) = attack_search("bim-10", Linf(0.3)).attacks
    draws = Draws.of(0, torch.arange(len(images))).stream("bim-10", 0)
    x = bim.attack(source, images, labels, draws=draws)
    right = int((target(x).argmax(1) == labels).sum())
    left_alone = torch.where(wrong[:, None, None, None], images, x)
    assert matrix.accuracies[0][0].correct == right
    assert right != int((target(left_alone).argmax(1) == labels).sum()), "a weak test"


def test_a_transfer_to_the_same_weights_is_as_strong_as_the_attack():
    """The right answers on what the white box calls broken or wrong are none."""
    images, labels = problem()
    model, twin = linear(1), linear(1)
    matrix = advnorm.evaluation.transfer(
        {"a": model}, {"a": model, "twin": twin}, images, labels, Linf(0.1), attack="bim-5"
    )
    white, transferred = matrix.accuracies[0]
    assert transferred.correct == white.correct


def test_models_and_random_numbers_are_left_as_they_were():
    images, labels = problem(10)
    models = {"a": linear(0).train(), "b": linear(1).train()}
    state = torch.get_rng_state()
    advnorm.evaluation.transfer(models, models, images, labels, Linf(0.1), attack="pgd-2")
    assert torch.equal(state, torch.get_rng_state())
    for model in models.values():
        assert model.training
        assert all(p.requires_grad and p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    "change, words",
    [
        ({"attack": "clean"}, "has no adversary"),
        ({"attack": "corruption-fog-3"}, "has no adversary"),
        ({"attack": "pdg-3"}, "did you mean 'pgd'"),
        ({"threat": 0.1}, r"threat is Linf\(8/255\) or L2\(0.5\)"),
        ({"sources": {}}, "at least one source"),
        ({"targets": {"a": linear(5)}}, "give them two names"),
        ({"labels": torch.full((5,), 3)}, "number the labels from 0"),
        ({"images": torch.randn(5, 1, 4, 4).double()}, "bounds"),
    ],
)
def test_mistakes_are_one_sentence(change, words):
    images, labels = problem(5)
    model = linear(0)
    arguments = {
        "sources": {"a": model},
        "targets": {"a": model},
        "images": images,
        "labels": labels,
        "threat": Linf(0.1),
    }
    arguments |= change
    tensors = [arguments.pop(key) for key in ("sources", "targets", "images", "labels")]
    with pytest.raises(ValueError, match=words):
        advnorm.evaluation.transfer(*tensors, **arguments)
