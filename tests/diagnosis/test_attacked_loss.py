"""The attacked loss of a linear model has a closed form: FGSM is optimal there."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import evaluate
from advnorm.diagnosis import attacked_loss
from advnorm.threat import Linf

EPS = 0.1


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 2)).double()


@pytest.mark.parametrize("steps", [1, 20])
def test_the_loss_of_two_classes_is_the_closed_form(linear, steps):
    x = torch.rand(700, 1, 2, 3, dtype=torch.float64) * 0.6 + 0.2  # bounds never cut
    y = torch.arange(700) % 2
    answer = attacked_loss(linear, x, y, threat=Linf(EPS), steps=steps)
    logits = linear(x).detach()
    margin = logits.gather(1, y[:, None]) - logits.gather(1, 1 - y[:, None])
    weight = (linear[1].weight[0] - linear[1].weight[1]).detach()
    expected = (
        F.softplus(-margin).mean(),
        F.softplus(EPS * weight.abs().sum() - margin).mean(),
    )
    assert answer.numbers["clean"] == pytest.approx(float(expected[0]), rel=1e-9)
    assert answer.numbers["attacked"] == pytest.approx(float(expected[1]), rel=1e-9)
    right = (
        (margin > 0).double().mean(),
        (margin > EPS * weight.abs().sum()).double().mean(),
    )
    assert answer.numbers["clean accuracy"] == pytest.approx(100 * float(right[0]))
    assert answer.numbers["attacked accuracy"] == pytest.approx(100 * float(right[1]))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_accuracy_is_that_of_an_evaluation(precision):
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3)]
    model = nn.Sequential(*layers).eval()
    x, y = torch.rand(300, 1, 4, 4), torch.arange(300) % 3
    seen = []
    model[1].register_forward_hook(lambda layer, inputs, output: seen.append(output.dtype))
    asked = {"threat": Linf(EPS), "steps": 10, "step_size": 0.02}
    numbers = attacked_loss(model, x, y, precision=precision, **asked).numbers
    assert set(seen) == {getattr(torch, precision), torch.float32}
    assert seen[-1] == torch.float32, "judged in the model's own precision"
    names = ["clean", "bim-10+step=0.02"]
    clean, robust = evaluate(model, x, y, Linf(EPS), conditions=names).results
    assert numbers["clean accuracy"] == pytest.approx(100 * clean.accuracy.fraction)
    assert numbers["attacked accuracy"] == pytest.approx(
        100 * robust.accuracy.fraction, abs=1
    )
    if precision == "float32":
        assert numbers["attacked accuracy"] == pytest.approx(100 * robust.accuracy.fraction)


def test_other_precisions_are_refused(linear):
    x, y = torch.rand(2, 1, 2, 3).double(), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="float32 or bfloat16, not 'half'"):
        attacked_loss(linear, x, y, threat=Linf(EPS), precision="half")


def test_it_needs_a_threat(linear):
    with pytest.raises(ValueError, match="needs a threat"):
        attacked_loss(linear, torch.rand(2, 1, 2, 3).double(), torch.tensor([0, 1]))


def test_running_statistics_decide_also_in_train_mode():
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2)]
    model = nn.Sequential(*layers).double()
    x, y = torch.rand(40, 1, 2, 3, dtype=torch.float64), torch.arange(40) % 2
    ours = attacked_loss(model.train(), x, y, threat=Linf(EPS)).numbers
    assert ours == attacked_loss(model.eval(), x, y, threat=Linf(EPS)).numbers
