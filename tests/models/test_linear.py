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
