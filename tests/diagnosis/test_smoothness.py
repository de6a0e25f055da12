"""The loss along the gradient, against a quadratic and a network's own passes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import diagnosis, norms
from advnorm.diagnosis.smoothness import follow_gradient


def test_on_a_quadratic_it_is_the_closed_form():
    torch.manual_seed(0)
    a = torch.randn(5, 5, dtype=torch.float64)
    a = a + a.T
    w = torch.randn(5, dtype=torch.float64, requires_grad=True)
    rates = [0.1, 0.2, 0.4]
    path = follow_gradient(lambda: 0.5 * w @ a @ w, [w], rates)
    x = w.detach()
    g = a @ x
    for rate, loss, change in zip(rates, path.losses, path.changes, strict=True):
        stepped = x - rate * g
        assert loss == pytest.approx(float(0.5 * stepped @ a @ stepped))
        assert change == pytest.approx(float(rate * (a @ g).norm()))
    assert path.smoothness == pytest.approx(float((a @ g).norm() / g.norm()))
    assert path.loss == pytest.approx(float(0.5 * x @ a @ x))
    assert path.norm == pytest.approx(float(g.norm()))


def test_the_weights_are_put_back_also_after_an_error():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    calls = []

    def loss():
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("stop")
        return (w**2).sum()

    with pytest.raises(RuntimeError, match="stop"):
        follow_gradient(loss, [w], [0.1, 0.2])
    assert w.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_it_is_the_loss_of_a_copy_that_took_the_step(statistics):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    images, labels = torch.rand(12, 3), torch.arange(12) % 3
    answer = diagnosis.smoothness(
        model, images, labels, largest=0.3, points=2, statistics=statistics
    )
    with norms.mode(model, statistics):
        F.cross_entropy(model(images), labels).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.3 * parameter.grad
        expected = F.cross_entropy(model(images), labels)
    (losses, changes) = answer.panels
    assert losses.series[0].x == (0.15, 0.3)
    assert losses.series[0].y[1] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert max(changes.series[0].y) == answer.numbers["largest change of the gradient"]


def test_bad_settings_are_one_sentence():
    model, images = nn.Linear(2, 2), torch.rand(2, 2)
    labels = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(
        ValueError,
        match=r"'largest' of question 'smoothness': 0\.0 should be greater than 0",
    ):
        diagnosis.smoothness(model, images, labels, largest=0.0)
    with pytest.raises(ValueError, match="batch or running"):
        diagnosis.smoothness(model, images, labels, statistics="train")
