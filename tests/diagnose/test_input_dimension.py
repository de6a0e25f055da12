"""Input dimension: enlarged images against PIL, rows against training by hand."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from advnorm import diagnose
from advnorm.attacks import fgsm
from advnorm.data import load
from advnorm.diagnose.input_dimension import Setting, enlarged, measure
from advnorm.diagnose.small import Training, connected, parted, trained
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
    np.testing.assert_array_equal(enlarged(image[None, None], factor)[0, 0], expected)


def test_a_vector_grows_by_the_square():
    assert enlarged(torch.tensor([[1.0, 2.0]]), 2).tolist() == [[1.0] * 4 + [2.0] * 4]


def test_a_row_is_a_network_trained_on_the_larger_images():
    images, labels = digits(60)
    parts, threat = parted(images, labels), Linf(0.1)
    row = measure(parts, 2, threat, Setting(epochs=3), decay=0.01)
    train, test = enlarged(parts.images, 2), enlarged(parts.test_images, 2)
    how = Training(3, 0.01, 8, decay=0.04)
    model = trained(lambda: connected(256, [], 10, []), train, parts.labels, how)
    clean = F.cross_entropy(model(test), parts.test_labels)
    assert row.clean.loss == pytest.approx(float(clean.detach()), rel=1e-5)
    moved = fgsm(model, test, parts.test_labels, threat)
    attacked = F.cross_entropy(model(moved), parts.test_labels)
    assert row.attacked.loss == pytest.approx(float(attacked.detach()), rel=1e-5)
    assert row.attacked.loss > row.clean.loss


def test_the_loss_grows_without_decay_and_less_with_it():
    images, labels = digits(200)
    found = diagnose.input_dimension(None, images, labels, factors=(1, 3), epochs=60)
    accuracy, losses = found.panels
    grown = {series.name: series.y for series in losses.series}
    assert grown["predicted without decay"] == (1.0, 3.0)
    assert grown["attacked, no decay"][1] > grown["attacked, decay"][1]
    assert found.numbers["no decay, 3 x: clean accuracy"] > 0.8
    assert {s.name.split(",")[0] for s in accuracy.series} == {"clean", "noise", "attacked"}


def test_a_wrong_network_is_one_sentence():
    with pytest.raises(ValueError, match="did you mean 'mlp'"):
        diagnose.input_dimension(None, *digits(8), network="mpl")
