"""Median norm against its equation, in float64; and the scope that takes a batch's median."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from advnorm import norms
from advnorm.folding import fast_logits

SHAPES = pytest.mark.parametrize("shape", [(7, 3), (6, 3), (5, 3, 2, 2), (4, 3, 5)])


def by_hand(x, weight, bias, eps):
    """Return the equation's output, with the lower of two middle values as the median."""
    out = np.empty_like(x)
    for k in range(x.shape[1]):
        values = np.sort(x[:, k].ravel())
        median = values[(len(values) - 1) // 2]
        around = ((values - median) ** 2).mean()
        out[:, k] = weight[k] * (x[:, k] - median) / np.sqrt(around + eps) + bias[k]
    return out


def layer_and_input(shape, kind=norms.MedianNorm):
    generator = torch.Generator().manual_seed(3)
    layer = kind(3, eps=0.1).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.5, -0.5, 2.0]))
        layer.bias.copy_(torch.tensor([0.1, 0.2, -0.3]))
    return layer, torch.randn(shape, generator=generator, dtype=torch.float64)


@SHAPES
def test_the_output_and_its_gradient_are_those_of_the_equation(shape):
    layer, x = layer_and_input(shape)
    parameters = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    x.requires_grad_()
    out = layer(x)
    expected = by_hand(x.detach().numpy(), *parameters, 0.1)
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=0, atol=1e-12)
    towards = torch.randn(shape, generator=torch.Generator().manual_seed(4)).double()
    (grad,) = torch.autograd.grad((out * towards).sum(), x)
    step, values = 1e-6, x.detach().numpy().ravel()
    for i in range(x.numel()):  # central differences of the reference
        sides = []
        for sign in (1, -1):
            moved = values.copy()
            moved[i] += sign * step
            out = by_hand(moved.reshape(shape), *parameters, 0.1)
            sides.append((out * towards.numpy()).sum())
        slope = (sides[0] - sides[1]) / (2 * step)
        assert grad.flatten()[i].item() == pytest.approx(slope, abs=1e-6)


@SHAPES
def test_the_scope_does_to_a_batch_norm_what_the_layer_does(shape):
    layer, x = layer_and_input(shape)
    plain, _ = layer_and_input(shape, norms.BatchNorm)
    before = deepcopy(plain.state_dict())
    with norms.mode(plain, "batch"), norms.median_statistics(plain):
        inside = plain(x)
    torch.testing.assert_close(inside, layer(x), rtol=0, atol=1e-12)
    assert all(torch.equal(before[key], value) for key, value in plain.state_dict().items())
    assert "forward" not in vars(plain) and plain.training
    with norms.mode(plain, "running"), norms.median_statistics(plain):
        running = plain(x)
    torch.testing.assert_close(running, plain.eval()(x))


def test_an_affine_norm_scales_by_its_domain_in_the_scope():
    layer, x = norms.AffineNorm(3).double(), layer_and_input((6, 3))[1]
    with torch.no_grad():
        layer.clean.weight.fill_(2.0)
        layer.adversarial.weight.fill_(3.0)
    ratios = []
    for domain in ("clean", "adversarial"):
        with (
            norms.route(layer, domain=domain),
            norms.mode(layer, "batch"),
            norms.median_statistics(layer),
        ):
            ratios.append(layer(x))
    torch.testing.assert_close(ratios[1], 1.5 * ratios[0])


def test_running_statistics_follow_the_median_and_the_deviation_around_it():
    layer = norms.MedianNorm(1, momentum=None)
    layer(torch.tensor([[0.0], [0.0], [6.0]]))
    assert layer.running_mean.item() == 0.0
    assert layer.running_var.item() == pytest.approx(12.0 * 3 / 2)  # unbiased, as PyTorch
    x = torch.tensor([[2.0], [4.0]])
    torch.testing.assert_close(layer.eval()(x), x / (18.0 + 1e-5) ** 0.5)


def test_few_outliers_move_a_mean_at_will_and_a_median_hardly():
    x = torch.arange(9.0)[:, None]
    moved = x.clone()
    moved[8] = 1e4
    assert torch.equal(*(norms.median.measure_median(v).mean for v in (x, moved)))
    assert norms.moments.measure_moments(moved).mean > 1e3


def test_a_converted_model_computes_the_same_and_folds_in_evaluation():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )
    images = torch.rand(8, 1, 4, 4)
    model(images)
    copy = norms.convert(model, "median").eval()
    torch.testing.assert_close(copy(images), model.eval()(images))
    assert norms.count_norms(copy) == {"median": 1}
    fast = fast_logits(copy, images)
    assert fast is not None
    torch.testing.assert_close(fast(images), copy(images))


def test_what_has_no_form_with_a_median_is_refused_by_name():
    with (
        pytest.raises(NotImplementedError, match="layer '0' is a DualNorm"),
        norms.median_statistics(nn.Sequential(norms.DualNorm(3))),
    ):
        pass
    with pytest.raises(ValueError, match="more than one value per feature"):
        norms.MedianNorm(3)(torch.rand(1, 3))
