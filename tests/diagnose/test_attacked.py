"""The attacked loss of a linear model has a closed form: FGSM is optimal there."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm.diagnose import attacked_loss
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
    found = attacked_loss(linear, x, y, threat=Linf(EPS), steps=steps)
    logits = linear(x).detach()
    margin = logits.gather(1, y[:, None]) - logits.gather(1, 1 - y[:, None])
    weight = (linear[1].weight[0] - linear[1].weight[1]).detach()
    expected = (
        F.softplus(-margin).mean(),
        F.softplus(EPS * weight.abs().sum() - margin).mean(),
    )
    assert found.numbers["clean"] == pytest.approx(float(expected[0]), rel=1e-9)
    assert found.numbers["attacked"] == pytest.approx(float(expected[1]), rel=1e-9)


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
