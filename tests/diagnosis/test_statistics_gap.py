"""Running statistics that have settled have no lag, whichever way the batches pass."""

import pytest
import torch
from torch import nn

from advnorm import diagnosis, norms
from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.diagnosis.common import frozen_eval
from advnorm.objectives.batching import forward_domains
from advnorm.threat import Linf

BALL = Linf(0.9)


def network():
    """Return one whose logit 1 grows with every pixel: FGSM whitens images of class 0."""
    torch.manual_seed(0)
    maps = (nn.Conv2d(1, 3, 3), norms.BatchNorm(3), nn.LeakyReLU(), nn.Conv2d(3, 4, 3))
    flat = (norms.BatchNorm(4), nn.Flatten(), nn.Linear(64, 5), norms.BatchNorm(5))
    model = nn.Sequential(*maps, *flat, nn.Linear(5, 2)).double()
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.weight.abs_()
        model[-1].weight[0] *= -1
    return model


def data(count):
    torch.manual_seed(1)
    dark = 0.1 * torch.rand(count, 1, 8, 8, dtype=torch.float64)
    return dark, torch.zeros(count, dtype=torch.int64)


def ask(model, images, labels, batching):
    options = {"attack": "fgsm", "batching": batching, "batch_size": 40}
    return diagnosis.statistics_gap(model, images, labels, threat=BALL, **options).numbers


@pytest.mark.parametrize("batching", ["sequential", "concatenated"])
def test_settled_statistics_have_no_lag_but_each_domain_its_distance(batching):
    model, (images, labels) = network(), data(40)
    before = ask(model, images, labels, batching)
    with frozen_eval(model):
        attacked = attack_images(model, images, labels, BALL, attack="fgsm")
    for _ in range(200):
        forward_domains(model, images, attacked, batching=batching)
    after = ask(model, images, labels, batching)
    apart = min(after["clean, systematic"], after["adversarial, systematic"])
    assert after["lag"] < 1e-4 * apart  # unbiased variances leave a little
    other = {"sequential": "concatenated", "concatenated": "sequential"}[batching]
    assert ask(model, images, labels, other)["lag"] > 100 * after["lag"]
    assert apart > 0.5 and before["lag"] > 0.5


def test_the_norm_after_a_linear_layer_is_left_out():
    """Its running statistics change the attack alone, which one step of zero length is."""
    model, (images, labels) = network(), data(80)
    options = {"attack": "fgsm", "batch_size": 40, "threat": Linf(1e-9)}
    first = diagnosis.statistics_gap(model, images, labels, **options).numbers
    model[7].running_mean.fill_(100.0)
    second = diagnosis.statistics_gap(model, images, labels, **options).numbers
    assert second == pytest.approx(first, rel=1e-6)
    model[4].running_mean.fill_(100.0)
    third = diagnosis.statistics_gap(model, images, labels, **options).numbers
    assert third["lag"] > first["lag"] + 10_000


def test_fewer_images_than_a_batch_are_refused():
    images, labels = data(10)
    with pytest.raises(ValueError, match="needs a batch of 64 images, not 10: take more"):
        diagnosis.statistics_gap(network(), images, labels, threat=BALL)
