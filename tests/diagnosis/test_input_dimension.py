"""Input dimension: enlarged images against PIL, rows against training by hand."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from advnorm import diagnosis
from advnorm.attacks import bim, fgsm
from advnorm.data import load
from advnorm.diagnosis.input_dimension import (
    DimensionOptions,
    _noise,
    enlarge,
    measure_dimension,
)
from advnorm.diagnosis.small_networks import (
    SGDOptions,
    fully_connected,
    split_train_test,
    train_network,
)
from advnorm.norms import NORMS
from advnorm.threat import Linf


def digits(n):
    data = load("digits").test
    return data.images[:n].float() / 255, data.labels[:n]


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_enlarging_is_that_of_pil(factor):
    image = (torch.rand(5, 4) * 255).to(torch.uint8)
    size = (4 * factor, 5 * factor)
    expected = np.asarray(
        Image.fromarray(image.numpy()).resize(size, Image.Resampling.NEAREST)
    )
    np.testing.assert_array_equal(enlarge(image[None, None], factor)[0, 0], expected)


def test_a_vector_grows_by_the_square():
    assert enlarge(torch.tensor([[1.0, 2.0]]), 2).tolist() == [[1.0] * 4 + [2.0] * 4]


def test_a_row_is_a_network_trained_on_the_larger_images():
    images, labels = digits(60)
    parts, threat = split_train_test(images, labels), Linf(0.1)
    row = measure_dimension(parts, 2, threat, DimensionOptions(epochs=3), decay=0.01)
    train, test = enlarge(parts.images, 2), enlarge(parts.test_images, 2)
    how = SGDOptions(3, 0.01, 8, decay=0.04)
    model = train_network(
        lambda: fully_connected(256, [], 10, []), train, parts.labels, how
    )
    clean = F.cross_entropy(model(test), parts.test_labels)
    assert row.clean.loss == pytest.approx(float(clean.detach()), rel=1e-5)
    moved = fgsm(model, test, parts.test_labels, threat)
    attacked = F.cross_entropy(model(moved), parts.test_labels)
    assert row.attacked.loss == pytest.approx(float(attacked.detach()), rel=1e-5)
    assert row.attacked.loss > row.clean.loss


@pytest.mark.parametrize("network", ["mlp", "mlp+bn"])
def test_hidden_layers_are_half_as_wide_and_attacked_by_many_small_steps(network):
    images, labels = digits(60)
    parts, threat = split_train_test(images, labels), Linf(0.1)
    row = measure_dimension(
        parts, 1, threat, DimensionOptions(network, epochs=3), decay=0.0
    )
    norm = NORMS["batch"]() if network == "mlp+bn" else None
    model = train_network(
        lambda: fully_connected(64, [32, 32], 10, [norm, None]),
        parts.images,
        parts.labels,
        SGDOptions(3, 0.01, 8),
    )
    x, y = parts.test_images, parts.test_labels
    moved = bim(model, x, y, threat, steps=100, step_size=0.001)
    seen = {"clean": x, "noise": x + _noise(parts), "attacked": moved}
    for name, inputs in seen.items():
        loss = float(F.cross_entropy(model(inputs), y).detach())
        assert getattr(row, name).loss == pytest.approx(loss, rel=1e-5), name


def test_noise_is_as_strong_as_the_images_deviate_and_comes_before_they_are_enlarged():
    parts = split_train_test(*digits(200))
    noise = _noise(parts)
    assert float(noise.std() / parts.test_images.std()) == pytest.approx(1, rel=0.02)
    assert abs(float(noise.mean())) < 0.02
    row = measure_dimension(parts, 2, Linf(0.1), DimensionOptions(epochs=1), decay=0.0)
    how = SGDOptions(1, 0.01, 12)
    model = train_network(
        lambda: fully_connected(256, [], 10, []),
        enlarge(parts.images, 2),
        parts.labels,
        how,
    )
    loss = F.cross_entropy(model(enlarge(parts.test_images + noise, 2)), parts.test_labels)
    assert row.noise.loss == pytest.approx(float(loss.detach()), rel=1e-5)


def test_the_numbers_are_those_of_its_rows():
    images, labels = digits(60)
    answer = diagnosis.input_dimension(None, images, labels, factors=(1, 3), epochs=2)
    grown = {series.name: series.y for series in answer.panels[-1].series}
    for name, decay in (("no decay", 0.0), ("decay", 0.0025)):
        setting = DimensionOptions(epochs=2)
        small, large = (
            measure_dimension(
                split_train_test(images, labels), factor, Linf(0.1), setting, decay=decay
            )
            for factor in (1, 3)
        )
        for kind in ("clean", "noise", "attacked"):
            key = f"{name}, 3 x: {kind} accuracy"
            assert answer.numbers[key] == getattr(large, kind).accuracy
        assert answer.numbers[f"{name}, 3 x: attacked loss"] == large.attacked.loss
        assert grown[name] == (1.0, large.attacked.loss / small.attacked.loss)


def test_the_loss_grows_without_decay_and_less_with_it():
    images, labels = digits(200)
    answer = diagnosis.input_dimension(None, images, labels, factors=(1, 3), epochs=60)
    *accuracies, losses = answer.panels
    grown = {series.name: series.y for series in losses.series}
    assert grown["predicted without decay"] == (1.0, 3.0)
    assert grown["no decay"][1] > grown["decay"][1]
    assert answer.numbers["no decay, 3 x: clean accuracy"] > 0.8
    assert [panel.title for panel in accuracies] == [
        "Accuracy, no decay",
        "Accuracy, decay",
    ]
    for panel in accuracies:
        name = panel.title.removeprefix("Accuracy, ")
        shown = {f"{name}, 3 x: {s.name} accuracy": s.y[1] for s in panel.series}
        assert shown == {key: answer.numbers[key] for key in shown} and len(shown) == 3


def test_a_wrong_network_is_one_sentence():
    with pytest.raises(ValueError, match="did you mean 'mlp'"):
        diagnosis.input_dimension(None, *digits(8), network="mpl")


def test_one_class_is_refused():
    images, labels = digits(20)
    with pytest.raises(ValueError, match="two classes or more, not of class 3 alone"):
        diagnosis.input_dimension(None, images, torch.full_like(labels, 3))
