"""Running statistics of test data: closed forms, and the model left as it was."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.norms.recalibrate import entropy


def network(affine=True):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6, affine=affine), nn.ReLU(), nn.Linear(6, 3)
    ).double()
    model(torch.rand(20, 4).double())
    return model, 3 * torch.rand(12, 4, generator=torch.Generator().manual_seed(1)).double()


def test_one_batch_gives_its_own_moments():
    model, images = network()
    layer = norms.recalibrate(model, images)[1]
    hidden = model[0](images)
    torch.testing.assert_close(layer.running_mean, hidden.mean(0))
    torch.testing.assert_close(layer.running_var, hidden.var(0))


def test_batches_count_alike_and_the_second_layer_sees_the_first_normalized_by_its_batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.BatchNorm1d(4)).double()
    images = torch.rand(12, 4).double()
    copy = norms.recalibrate(model, images, batch_size=5)
    parts = images.tensor_split(3)
    for layer, transform in ((copy[0], lambda x: x), (copy[2], hidden)):
        means = torch.stack([transform(part).mean(0) for part in parts])
        variances = torch.stack([transform(part).var(0) for part in parts])
        torch.testing.assert_close(layer.running_mean, means.mean(0))
        torch.testing.assert_close(layer.running_var, variances.mean(0))
        assert layer.num_batches_tracked == 3 and layer.momentum == 0.1


def hidden(x):
    return ((x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()).relu()


@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_as_before_and_the_copy_is_in_its_mode(training):
    model, images = network()
    model.train(training)
    model[1].weight.requires_grad_(False)
    before, state = deepcopy(model.state_dict()), torch.get_rng_state()
    copy = norms.recalibrate(model, images, entropy_steps=3, lr=0.1)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in copy.modules()] == [training] * 5
    flags = [p.requires_grad for p in copy.parameters()]
    assert flags == [p.requires_grad for p in model.parameters()]
    assert all(p.grad is None for p in copy.parameters())
    assert torch.equal(copy[0].weight, model[0].weight)


def test_predictions_depend_on_the_batch_no_more():
    model, images = network()
    copy = norms.recalibrate(model, images).eval()
    torch.testing.assert_close(copy(images)[:2], copy(images[:2]))


def test_entropy_steps_lower_the_entropy_by_the_affine_parameters_alone():
    model, images = network()
    plain = norms.recalibrate(model, images)
    steps = norms.recalibrate(model, images, entropy_steps=10, lr=0.05)
    changed = [
        name
        for (name, old), new in zip(
            plain.named_parameters(), steps.parameters(), strict=True
        )
        if not torch.equal(old, new)
    ]
    assert changed == ["1.weight", "1.bias"]
    before, after = (entropy(each.eval()(images)) for each in (plain, steps))
    assert after < 0.9 * before


def test_the_first_entropy_step_is_that_of_adam():
    """Its first step has the length lr against the sign of the gradient."""
    model, images = network()
    copy = norms.recalibrate(model, images, entropy_steps=1, lr=0.01)
    with norms.mode(model, "batch"):
        p = F.softmax(model(images), 1)
        loss = -(p * p.log()).sum(1).mean()
    (grad,) = torch.autograd.grad(loss, model[1].bias)
    expected = model[1].bias - 0.01 * grad.sign()
    torch.testing.assert_close(copy[1].bias, expected, rtol=0, atol=1e-6)


def test_a_branch_that_sees_nothing_keeps_its_statistics():
    layer, images = norms.MixtureNorm(3), torch.rand(8, 3) + 5
    layer.clean.running_mean.fill_(7.0)
    with norms.route(layer, domain="adversarial"):
        copy = norms.recalibrate(layer, images)
    assert copy.adversarial.running_mean.min() > 5
    assert torch.equal(copy.clean.running_mean, torch.full((3,), 7.0))


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (nn.Linear(3, 2), {}, "no batch norm"),
        (nn.BatchNorm1d(3), {"batch_size": 1}, "batch_size >= 2"),
        (nn.BatchNorm1d(3), {"lr": 0.0}, "lr > 0"),
        (nn.BatchNorm1d(3, affine=False), {"entropy_steps": 1}, "no affine parameters"),
    ],
)
def test_refusals(model, settings, words):
    with pytest.raises(ValueError, match=words):
        norms.recalibrate(model, torch.rand(4, 3), **settings)


def test_a_dual_norm_is_refused():
    with pytest.raises(NotImplementedError, match="collapse"):
        norms.recalibrate(norms.DualNorm(3), torch.rand(4, 3))
