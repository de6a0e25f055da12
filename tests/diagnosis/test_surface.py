"""The loss around an image against a linear model, and a planted masked gradient."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import diagnosis
from advnorm.diagnosis.surface import loss_directions
from advnorm.threat import L2, Linf


@pytest.mark.parametrize("threat", [Linf(0.2), L2(0.5)])
def test_the_grid_is_the_loss_of_moved_images(threat):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    images, labels = torch.rand(5, 1, 2, 2).double(), torch.arange(5) % 3
    answer = diagnosis.surface(
        model, images, labels, threat=threat, sample=2, points=5, span=2.0
    )
    steps = loss_directions(model, images, labels, threat)
    x = images[2:3].clone().requires_grad_()
    F.cross_entropy(model(x), labels[2:3]).backward()
    torch.testing.assert_close(steps.gradient[2:3], threat.eps * threat.direction(x.grad))
    grid = answer.panels[1].pictures[0].channels[0]
    for row, b in enumerate([2, 1, 0, -1, -2]):  # the random direction runs up
        for column, a in enumerate([-2, -1, 0, 1, 2]):
            moved = images[2:3] + a * steps.gradient[2:3] + b * steps.random[2:3]
            expected = float(F.cross_entropy(model(moved), labels[2:3]).detach())
            assert grid[row][column] == pytest.approx(expected)
    gradient, random = answer.panels[0].series
    assert gradient.y == pytest.approx(grid[2])
    assert random.y == pytest.approx([row[2] for row in reversed(grid)])
    assert answer.numbers["random beats gradient"] == 0  # a linear model hides nothing
    for name, step in {
        "loss": 0.0,
        "loss after a gradient step": steps.gradient,
        "loss after a random step": steps.random,
    }.items():
        mean = float(F.cross_entropy(model(images + step), labels).detach())
        assert answer.numbers[name] == pytest.approx(mean), name


def test_random_steps_are_of_the_threats_kind():
    model, images = nn.Linear(6, 2), torch.rand(3, 6)
    labels = torch.zeros(3, dtype=torch.int64)
    cube = loss_directions(model, images, labels, Linf(0.1)).random
    assert (cube.abs() == 0.1).all() and len(cube.unique()) == 2
    ball = loss_directions(model, images, labels, L2(0.1)).random
    torch.testing.assert_close(ball.norm(dim=1), torch.full((3,), 0.1))


class Masked(nn.Module):
    """Its value falls with the first pixel, its gradient says that it rises."""

    def forward(self, x):
        truth, lie = (x[:, :1] - 0.5) * 50, (0.5 - x[:, :1]) * 50
        value = truth.detach() + lie - lie.detach()
        return torch.cat([value, torch.zeros_like(value)], 1)


def test_a_masked_gradient_is_detected():
    images, labels = torch.full((64, 2), 0.5), torch.zeros(64, dtype=torch.int64)
    answer = diagnosis.surface(Masked(), images, labels, threat=Linf(0.1), points=3)
    assert 0.2 < answer.numbers["random beats gradient"] < 0.8  # half of the random steps


def test_bad_settings_are_one_sentence():
    model, images = nn.Linear(2, 2), torch.rand(2, 2)
    labels = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="needs a threat"):
        diagnosis.surface(model, images, labels)
    with pytest.raises(ValueError, match="sample from 0 to 1"):
        diagnosis.surface(model, images, labels, threat=Linf(0.1), sample=2)


@pytest.mark.parametrize("points", [1, 4])
def test_without_a_point_in_the_middle_there_are_no_lines_through_it(points):
    images, labels = torch.rand(3, 4), torch.arange(3)
    with pytest.raises(ValueError, match="odd number of points"):
        diagnosis.surface(nn.Linear(4, 3), images, labels, threat=Linf(0.1), points=points)
