"""Objectives of one domain against losses written out by hand."""

import torch
from torch import nn
from torch.nn import functional as F

from advnorm import objectives
from advnorm.objectives import Adversary


def net():
    return nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
    ).double()


def shifted(logits_fn, clean, labels, goal):
    return clean + 0.25


def reference(model, images, labels):
    """Cross-entropy through batch statistics, written out."""
    h = images @ model[0].weight.T + model[0].bias
    h = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()
    h = (h * model[1].weight + model[1].bias).relu()
    logits = h @ model[3].weight.T + model[3].bias
    return (logits.logsumexp(1) - logits[torch.arange(len(labels)), labels]).mean()


def test_standard_trains_on_clean_and_pgd_on_adversarial_images():
    model, clean, labels = net(), torch.rand(9, 5).double(), torch.arange(9) % 3
    for objective, images in ((objectives.standard, clean), (objectives.pgd, clean + 0.25)):
        loss = objective(model, clean, labels, Adversary(shifted))
        torch.testing.assert_close(loss.total, reference(model, images, labels))
        assert 0 <= loss.correct <= 9 and len(loss.parts) == 1


def test_running_statistics_move_once_by_the_images_trained_on():
    model, clean, labels = net(), torch.rand(9, 5).double(), torch.arange(9) % 3
    objectives.pgd(model, clean, labels, Adversary(shifted))
    hidden = model[0](clean + 0.25)
    torch.testing.assert_close(model[1].running_mean, 0.1 * hidden.mean(0))
    torch.testing.assert_close(model[1].running_var, 0.9 + 0.1 * hidden.var(0))
    assert model[1].num_batches_tracked == 1


def test_a_model_in_evaluation_is_trained_with_batch_statistics_and_put_back():
    model = net().eval()
    objectives.standard(
        model, torch.rand(9, 5).double(), torch.arange(9) % 3, Adversary(None)
    )
    assert not model[1].training and model[1].num_batches_tracked == 1


def test_without_a_radius_the_images_stay_clean():
    model, clean, labels = net(), torch.rand(9, 5).double(), torch.arange(9) % 3
    loss = objectives.pgd(model, clean, labels, Adversary(None))
    torch.testing.assert_close(loss.total, reference(model, clean, labels))


def test_soft_labels_are_the_mixture_of_the_hard_losses():
    model, clean = net(), torch.rand(9, 5).double()
    one, two = torch.arange(9) % 3, (torch.arange(9) + 1) % 3
    soft = 0.3 * F.one_hot(one, 3) + 0.7 * F.one_hot(two, 3).double()
    mixed = objectives.standard(model, clean, soft, Adversary(None)).total
    parts = [
        objectives.standard(model, clean, y, Adversary(None)).total for y in (one, two)
    ]
    torch.testing.assert_close(mixed, 0.3 * parts[0] + 0.7 * parts[1])
