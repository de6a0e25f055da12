"""Top-k accuracy against a count by hand, and against plain accuracy."""

import pytest
import torch
from torch import nn

from advnorm.attacks import bim
from advnorm.diagnosis import top_k
from advnorm.diagnosis.top_k import top_k_accuracy
from advnorm.threat import Linf


@pytest.fixture
def problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 7)).double()
    return model, torch.rand(300, 1, 2, 3).double(), torch.arange(300) % 7


def rank(model, images, labels):
    """Return how many classes are likelier than the right one."""
    logits = model(images).detach()
    return (logits > logits.gather(1, labels[:, None])).sum(1)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_it_counts_ranks(problem, k):
    model, images, labels = problem
    numbers = top_k(model, images, labels, threat=Linf(0.1), k=k).numbers
    assert numbers["clean"] == pytest.approx(
        100 * float((rank(model, *problem[1:]) < k).double().mean())
    )
    moved = bim(model, images, labels, Linf(0.1), steps=20, step_size=0.01)
    assert numbers["attacked"] == pytest.approx(
        100 * float((rank(model, moved, labels) < k).double().mean())
    )


def test_noise_of_no_size_changes_nothing_and_much_of_it_leaves_chance(problem):
    model, images, _ = problem
    labels = model(images).argmax(1)
    none, much = (
        top_k(model, images, labels, threat=Linf(0.1), k=3, sigma=sigma).numbers
        for sigma in (1e-12, 1e4)
    )
    assert none["noise"] == none["clean"] == 100
    assert abs(much["noise"] - 300 / 7) < 15


@pytest.mark.parametrize("k", [0, 3])
def test_a_k_outside_of_the_classes_is_refused(k):
    with pytest.raises(ValueError, match="k must be from 1 to 2 for 3 classes"):
        top_k_accuracy(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), k)
