"""Linear classifiers and fully connected networks: where they start, what they compute."""

import pytest
import torch
from torch import nn

from advnorm.models import build
from advnorm.norms import NORMS

NONE = NORMS["none"]()


def test_linear_normalizes_its_inputs():
    model = build("linear", shape=(2,), classes=2, norm=NORMS["batch"](eps=1e-9))
    model.classifier.weight.data = torch.eye(2)
    nn.init.zeros_(model.classifier.bias)
    output = model(torch.tensor([[0.0, 10.0], [2.0, 30.0]]))
    torch.testing.assert_close(output, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))


@pytest.mark.parametrize(
    ("start", "variance"), [("uniform", 1 / (3 * 784)), ("normal", 2 / (784 + 200))]
)
def test_linear_starts_with_the_variance_it_states(start, variance):
    model = build(
        "linear",
        shape=(1, 28, 28),
        classes=200,
        norm=NONE,
        options={"start": start},
    )
    weights = model.classifier.weight.detach()
    assert abs(float(weights.var()) / variance - 1) < 0.03  # over 8 standard errors
    bounded = bool(weights.abs().max() <= (3 * variance) ** 0.5)
    assert bounded is (start == "uniform")


def test_linear_may_start_from_nothing():
    options = {"start": "zeros"}
    model = build("linear", shape=(1, 4, 4), classes=3, norm=NONE, options=options)
    assert all(bool((p == 0).all()) for p in model.parameters())


@pytest.mark.parametrize(("start", "kept"), [("he", True), ("uniform", False)])
def test_a_signal_passes_a_deep_perceptron_from_he_initialization_only(start, kept):
    torch.manual_seed(0)
    options = {"width": 256, "depth": 30, "start": start}
    model = build("mlp", shape=(256,), classes=10, norm=NONE, options=options)
    first, second = torch.randn(2, 64, 256)
    variance = (model(first) - model(second)).detach().var()
    assert (variance > 0.01) == kept
    assert not kept or variance < 100


def test_a_deep_network_without_activation_is_linear():
    options = {"width": 5, "depth": 3, "activation": "none"}
    model = build("mlp", shape=(4,), classes=2, norm=NONE, options=options)
    first, second = torch.randn(2, 6, 4)
    summed = model(first) + model(second) - model(torch.zeros(6, 4))
    torch.testing.assert_close(model(first + second), summed)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": "glorot"}, "'glorot' should be 'uniform' or 'he'"),
        ({"activation": "tanh"}, "'tanh' should be 'relu' or 'none'"),
    ],
)
def test_mlp_refuses_what_it_does_not_know(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        build("mlp", shape=(2,), classes=2, norm=NONE, options=options)


def logistic_descent(w, b, x, signs, *, lr, decay, steps):
    """Return w and b after descent on mean log(1 + exp(-y (w x + b))) + decay / 2 |.|^2."""
    for _ in range(steps):
        pull = torch.sigmoid(-signs * (x @ w + b)) * signs / len(x)
        w, b = w + lr * (x.T @ pull - decay * w), b + lr * (pull.sum() - decay * b)
    return w, b


def test_the_logistic_output_descends_as_the_equation_of_one_unit():
    torch.manual_seed(0)
    options = {"start": "normal", "output": "logistic"}
    model = build("linear", shape=(6,), classes=2, norm=NONE, options=options).double()
    x, labels = torch.randn(40, 6, dtype=torch.float64), torch.arange(40) % 2
    layer = model.classifier
    start = layer.weight.detach()[0].clone(), layer.bias.detach()[0].clone()
    sgd = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.1)
    for _ in range(20):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        sgd.step()
    w, b = logistic_descent(*start, x, 2.0 * labels - 1, lr=0.5, decay=0.1, steps=20)
    torch.testing.assert_close(layer.weight.detach()[0], w)
    torch.testing.assert_close(layer.bias.detach()[0], b)
    margins = model(x).detach()
    torch.testing.assert_close(margins[:, 1] - margins[:, 0], x @ w + b)


def test_two_units_move_twice_as_far_as_the_one_of_the_logistic_output():
    x, labels = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([0, 1])
    moved = {}
    for output in ("softmax", "logistic"):
        options = {"start": "zeros", "output": output}
        model = build("linear", shape=(2,), classes=2, norm=NONE, options=options)
        nn.functional.cross_entropy(model(x), labels).backward()
        gradient = model.classifier.weight.grad
        moved[output] = gradient[-1] - (gradient[0] if output == "softmax" else 0)
    torch.testing.assert_close(moved["softmax"], 2 * moved["logistic"])


def test_the_logistic_output_is_for_two_classes():
    with pytest.raises(ValueError, match="is for 2 classes, not 3: choose two with"):
        options = {"output": "logistic"}
        build("linear", shape=(2,), classes=3, norm=NONE, options=options)
