"""Dead units by hand: weights whose units cannot fire."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import diagnosis


class Hidden(nn.Module):
    """A network that calls its rectifiers as functions."""

    def __init__(self, calls):
        super().__init__()
        self.first, self.last, self.calls = nn.Linear(2, 4), nn.Linear(4, 3), calls

    def forward(self, x):
        return self.last(self.calls(self.first(x)))


def network(calls):
    model = Hidden(calls)
    with torch.no_grad():
        model.first.weight[:] = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [-1, -1]])
        model.first.bias.zero_()  # on [0, 1] the last two never fire
        model.last.weight.zero_()
        model.last.bias[:] = torch.tensor([0.0, 1.0, 0.0])
    return model


@pytest.mark.parametrize(
    "calls", [nn.ReLU(), F.relu, torch.relu, torch.Tensor.relu, F.relu6, nn.ReLU(True)]
)
def test_half_of_the_units_cannot_fire(calls):
    images, labels = torch.rand(600, 2) * 0.9 + 0.05, torch.zeros(600, dtype=torch.int64)
    numbers = diagnosis.dead(network(calls), images, labels).numbers
    assert numbers["dead units"] == 0.5
    assert numbers["dead layers"] == 0 and numbers["rectified layers"] == 1
    assert numbers["most predicted class"] == 1 and numbers["classes predicted"] == 1


def test_a_unit_that_fires_once_in_any_part_is_alive():
    model = network(nn.ReLU())
    images = torch.full((600, 2), 0.5)
    images[0] = torch.tensor([-3.0, 0.5])  # fires the last two, in the first part alone
    numbers = diagnosis.dead(model, images, torch.zeros(600, dtype=torch.int64)).numbers
    assert numbers["dead units"] == 0


def test_a_dead_layer_of_maps_is_seen_by_channel():
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=True),
        nn.ReLU(),
        nn.Conv2d(3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
    )
    with torch.no_grad():
        model[0].bias[:] = torch.tensor([-100.0, -100.0, 100.0])
        model[2].bias[:] = -1000.0
    answer = diagnosis.dead(
        model, torch.rand(4, 1, 5, 5), torch.zeros(4, dtype=torch.int64)
    )
    assert answer.numbers["dead units"] == pytest.approx(4 / 5)
    assert answer.numbers["dead layers"] == 1 and answer.numbers["rectified units"] == 5
    assert answer.panels[0].series[0].y == (pytest.approx(2 / 3), 1.0)


def test_predictions_are_counted_by_class_without_rectifiers():
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight[:] = torch.eye(3)
    images = torch.eye(3)[[0, 0, 0, 2]]
    answer = diagnosis.dead(model, images, torch.zeros(4, dtype=torch.int64))
    assert answer.panels[0].series[0].y == (0.75, 0.0, 0.25)
    assert answer.numbers["classes predicted"] == 2 and answer.numbers["dead units"] == 0


def test_a_rectified_vector_of_the_model_is_no_layer():
    """A learnt positive scale, say: it has no samples."""

    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(F.relu(x)) * F.relu(self.bias)

    answer = diagnosis.dead(Scaled(4, 2), torch.rand(6, 4), torch.zeros(6).long())
    assert answer.numbers["rectified layers"] == 1
