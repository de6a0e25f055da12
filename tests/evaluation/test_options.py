"""PGD's options in an evaluation do what they say."""

import pytest
import torch
from torch import nn

from advnorm.attacks import GOALS, pgd
from advnorm.draws import Draws
from advnorm.evaluation import evaluate
from advnorm.threat import L2, Linf


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.25)], ids=str)
@pytest.mark.parametrize(
    "name, settings",
    [
        ("pgd-6+random", {"goal": GOALS["random"]}),
        ("pgd-6+least_likely", {"goal": GOALS["least_likely"]}),
        ("pgd-6+clean", {"clean_start": 1.0}),
        ("pgd-6+clean=0.3+random", {"clean_start": 0.3, "goal": GOALS["random"]}),
        ("pgd-6+step=0.01", {}),
        ("pgd-6+ratio=1.2", {}),
    ],
)
def test_an_option_is_the_attacks_own_argument(five_classes, name, settings, threat):
    model, images, labels = five_classes
    (evaluation,) = evaluate(
        model, images, labels, threat, conditions=[name]
    ).verdicts.values()
    size = 2.5 * threat.eps / 6
    size = {"step": 0.01, "ratio": 1.2 * threat.eps / 6}.get(name[6:].split("=")[0], size)
    path = "pgd" if "step" in name else name
    draws = Draws.of(0, torch.arange(60)).stream(path, 0)
    x = pgd(model, images, labels, threat, steps=6, step_size=size, draws=draws, **settings)
    expected = (model(x).argmax(1) == labels).tolist()
    assert list(evaluation.robust) == expected and 0 < sum(expected) < 60


def test_a_targeted_search_succeeds_with_any_wrong_class():
    """Class 1 is on the way to the target 2: who ends there is not robust either."""
    model = nn.Linear(1, 3).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [10.0], [20.0]]))
        model.bias.copy_(torch.tensor([0.0, -5.0, -12.0]))
    images, labels = torch.tensor([[0.4], [0.1]]).double(), torch.zeros(2).long()
    name = "pgd-10+least_likely+step=0.05"
    evaluation = evaluate(model, images, labels, Linf(0.2), conditions=[name])
    verdicts = next(iter(evaluation.verdicts.values()))
    assert verdicts.robust == (False, True) and verdicts.predictions == (1, 0)


def test_restarts_draw_new_targets_and_can_only_break_more(five_classes):
    model, images, labels = five_classes
    names = ["pgd-6+random+step=0.02", "pgd-6x8+random+step=0.02"]
    one, many = evaluate(
        model, images, labels, Linf(0.1), conditions=names
    ).verdicts.values()
    assert all(a or not b for a, b in zip(one.robust, many.robust, strict=True))
    assert many.accuracy().correct < one.accuracy().correct
