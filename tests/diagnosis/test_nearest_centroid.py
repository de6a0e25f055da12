"""The nearest-centroid classifier against distances, and the means of a training set."""

import pytest
import torch
from torch import nn

from advnorm import diagnosis
from advnorm.threat import Linf

MODEL = nn.Linear(2, 2)


def points():
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    return torch.rand(60, 2) * 0.6 + 0.2 * labels[:, None], labels


def accuracy(x, labels, means):
    """Return the share of points of two classes that are nearer to their own mean."""
    nearest = torch.cdist(x.double(), means).argmin(1)
    return 100 * float((nearest == labels).double().mean())


def test_it_is_the_class_of_the_nearest_mean():
    images, labels = points()
    two = labels < 2
    means = torch.stack([images[labels == k].double().mean(0) for k in (0, 1)])
    answer = diagnosis.nearest_centroid(MODEL, images, labels)
    expected = accuracy(images[two], labels[two], means)
    assert answer.numbers["accuracy, eps 0"] == pytest.approx(expected)
    assert 50 < expected < 100 and answer.settings["n"] == 40


def test_fgsm_is_the_worst_corner_of_the_ball_and_stays_in_the_bounds():
    images, labels = points()
    two = labels < 2
    images, labels = images[two].clamp(0, 1), labels[two]
    means = torch.stack([images[labels == k].double().mean(0) for k in (0, 1)])
    answer = diagnosis.nearest_centroid(
        MODEL, images, labels, radii=(0.1,), threat=Linf(0.5)
    )
    corners = torch.cartesian_prod(*[torch.tensor([-0.1, 0.0, 0.1])] * 2)
    robust = torch.stack(
        [
            torch.cdist((images + c).clamp(0, 1).double(), means).argmin(1) == labels
            for c in corners
        ]
    ).all(0)
    share = 100 * float(robust.double().mean())
    assert answer.numbers["accuracy, eps 0.1"] == pytest.approx(share)
    assert share < accuracy(images, labels, means)


def test_the_means_of_the_training_set_come_before_those_of_the_images():
    images, labels = points()
    training_means = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    answer = diagnosis.nearest_centroid(
        MODEL, images, labels, radii=(0.0,), training_means=training_means
    )
    right = (images[:, 1] > 0.5).long()[labels < 2] == labels[labels < 2]
    expected = 100 * float(right.double().mean())
    assert answer.numbers["accuracy, eps 0"] == pytest.approx(expected)
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[:] = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    tilted = diagnosis.tilt(
        model, images, labels, constants=(1e-5,), training_means=training_means
    )
    assert tilted.numbers["this model"] == pytest.approx(45)
