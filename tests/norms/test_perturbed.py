"""Perturbed batch norm (apart2022 Eq. 3) against the equation, and its scopes."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm import norms
from advnorm.norms.perturbed_kernel import perturbed_batch_norm


def equation3(x, gamma, beta, of_mean, of_deviation, eps, *, detached=False):
    """Return Eq. 3 as it is written, over samples and positions; the shift may be fixed."""
    dims, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    mu = x.mean(dims)
    sigma = (x.var(dims, correction=0) + eps).sqrt()
    g, b, dm, ds, mu, sigma = (
        v.view(shape) for v in (gamma, beta, of_mean, of_deviation, mu, sigma)
    )
    if detached:
        return g * (1 + ds) * ((x - mu) / sigma - dm * (mu / sigma).detach()) + b
    return g * (1 + ds) * (x - (1 + dm) * mu) / sigma + b


def layer_of(features, seed=0, kind=nn.BatchNorm2d):
    torch.manual_seed(seed)
    layer = kind(features).double()
    nn.init.uniform_(layer.weight, 0.5, 1.5)
    nn.init.normal_(layer.bias)
    layer.running_mean.uniform_(-1, 1)
    layer.running_var.uniform_(0.5, 2)
    return layer


def shift_of(features, radius=0.3):
    draw = [radius * (2 * torch.rand(features, dtype=torch.float64) - 1) for _ in "ab"]
    return norms.StatisticsShift(*draw)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 6),
    st.integers(1, 4),
    st.sampled_from([(), (3,), (2, 3), (2, 2, 2)]),
    st.integers(0, 1000),
    st.booleans(),
    st.booleans(),
)
def test_values_and_all_gradients_are_those_of_the_equation(
    rows, features, rest, seed, at_0, detached
):
    torch.manual_seed(seed)
    x = torch.randn(rows, features, *rest, dtype=torch.float64) * 2 + 1
    vectors = [torch.randn(features, dtype=torch.float64) for _ in range(4)]
    vectors[2:] = [0 * v if at_0 else 0.3 * v for v in vectors[2:]]
    inputs = [t.requires_grad_() for t in (x, *vectors)]
    weights = torch.randn_like(x)
    output, _ = perturbed_batch_norm(
        x, tuple(inputs[1:3]), tuple(inputs[3:]), 1e-2, at_zero=at_0, detached=detached
    )
    expected = equation3(*inputs, 1e-2, detached=detached)
    assert torch.allclose(output, expected, atol=1e-10)
    for a, b in zip(
        torch.autograd.grad((output * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("detached", [False, True])
def test_a_lender_s_moments_are_differentiated_or_not(detached):
    """A borrowed norm takes another path than the kernel."""
    layer = norms.BorrowedNorm(3).double()
    shift, x = shift_of(3), torch.randn(8, 3, 4, dtype=torch.float64) + 1
    x.requires_grad_()
    with (
        norms.route(layer, clean=4),
        norms.perturbed(layer, {layer: shift}, detached=detached),
    ):
        output = layer(x[..., None])[..., 0]
    mu = x[:4].mean((0, 2)).view(1, -1, 1)
    sigma = (x[:4].var((0, 2), correction=0) + layer.eps).sqrt().view(1, -1, 1)
    ratio = mu / sigma
    dm, ds = (side.view(1, -1, 1) for side in shift)
    fixed = ratio.detach() if detached else ratio
    expected = (1 + ds) * ((x - mu) / sigma - dm * fixed)
    assert torch.allclose(output, expected, atol=1e-10)
    weights = torch.randn_like(x)
    gradients = [
        torch.autograd.grad((y * weights).sum(), x, retain_graph=True)[0]
        for y in (output, expected)
    ]
    assert torch.allclose(*gradients, atol=1e-9)


def test_a_second_derivative_is_refused():
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    one, zero = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    y, _ = perturbed_batch_norm(x, (one, zero), (zero, zero), 1e-5, at_zero=False)
    with pytest.raises(RuntimeError, match="only once: leave out create_graph"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_groups_are_normalized_each_by_itself(groups):
    layer, shift = layer_of(3), shift_of(3)
    x = torch.randn(6, 3, 2, 2, dtype=torch.float64) + 1
    with norms.perturbed(layer, {layer: shift}, groups=groups):
        output = layer(x)
    for j in range(groups):
        expected = equation3(x[j::groups], layer.weight, layer.bias, *shift, layer.eps)
        assert torch.allclose(output[j::groups], expected)


def test_running_statistics_are_shifted_in_evaluation():
    layer, shift = layer_of(3).eval(), shift_of(3)
    x = torch.randn(5, 3, 2, 2, dtype=torch.float64)
    with norms.perturbed(layer, {layer: shift}):
        output = layer(x)
    twin = deepcopy(layer)
    twin.running_mean *= 1 + shift.mean
    with torch.no_grad():
        twin.weight *= 1 + shift.deviation
        assert torch.allclose(output, twin(x))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("running", [False, True])
def test_an_affine_norm_is_perturbed_with_the_parameters_of_each_domain(groups, running):
    """Four clean rows and two adversarial; groups are the even and the odd rows."""
    layer = norms.AffineNorm(3).double().train(not running)
    for own in (layer.clean, layer.adversarial):
        nn.init.uniform_(own.weight, 0.5, 1.5)
        nn.init.normal_(own.bias)
    layer.running_mean.uniform_(-1, 1)
    x, shift = torch.randn(6, 3, 2, 2, dtype=torch.float64), shift_of(3)
    scope = norms.perturbed(layer, {layer: shift}, groups=groups)
    with norms.route(layer, clean=4), scope:
        perturbed = layer(x)
    for row in range(6):
        own = layer.clean if row < 4 else layer.adversarial
        if running:
            mean = (1 + shift.mean) * layer.running_mean
            factor = own.weight * (1 + shift.deviation) / (layer.running_var + 1e-5).sqrt()
            shape = (3, 1, 1)
            expected = factor.view(shape) * (x[row] - mean.view(shape)) + own.bias.view(
                shape
            )
        else:
            group = equation3(x[row % groups :: groups], own.weight, own.bias, *shift, 1e-5)
            expected = group[row // groups]
        torch.testing.assert_close(perturbed[row], expected)


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, norms.BatchNorm, nn.SyncBatchNorm])
def test_a_scope_moves_nothing_and_leaves_nothing(kind):
    layer = layer_of(3, kind=kind)
    before, names = deepcopy(layer.state_dict()), set(vars(layer))
    x = torch.randn(4, 3, 2, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="planted"):  # noqa: SIM117
        with norms.perturbed(layer, {layer: shift_of(3)}):
            layer(x)
            raise RuntimeError("planted")
    after = layer.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert after.keys() == before.keys() and set(vars(layer)) - {"dims"} <= names


def test_scopes_nest():
    layer, x = layer_of(3), torch.randn(4, 3, 2, 2, dtype=torch.float64)
    one, other = shift_of(3), shift_of(3)
    with norms.perturbed(layer, {layer: one}):
        first = layer(x)
        with norms.perturbed(layer, {layer: other}):
            assert not torch.allclose(layer(x), first)
        assert torch.equal(layer(x), first)
        with norms.unperturbed(layer):
            assert torch.allclose(
                layer(x),
                equation3(
                    x, layer.weight, layer.bias, 0 * one.mean, 0 * one.mean, layer.eps
                ),
            )
        assert torch.equal(layer(x), first)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_the_gradient_scope_moves_running_statistics_as_a_plain_pass(momentum):
    layer = layer_of(3)
    layer.momentum = momentum
    twin, x = deepcopy(layer), torch.randn(4, 3, 2, 2, dtype=torch.float64)
    with norms.statistics_gradient(layer) as shifts:
        y = layer(x)
        y.square().sum().backward()
    assert torch.allclose(y, twin(x))
    for key, value in twin.state_dict().items():
        assert torch.allclose(layer.state_dict()[key], value, rtol=1e-12)
    assert all(delta.grad.abs().sum() > 0 for delta in shifts[layer])


def test_layers_without_affine_parameters_or_running_statistics():
    layer = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    x, shift = torch.randn(8, 3), norms.StatisticsShift(*shift_of(3))
    shift = norms.StatisticsShift(shift.mean.float(), shift.deviation.float())
    with norms.perturbed(layer, {layer: shift}):
        output = layer.eval()(x)
    one = torch.ones(3)
    assert torch.allclose(output, equation3(x, one, 0 * one, *shift, layer.eps), atol=1e-5)
    with norms.statistics_gradient(layer) as shifts:
        layer(x).square().sum().backward()
    assert all(delta.grad is not None for delta in shifts[layer])


def test_keep_statistics_turns_train_into_batch():
    layer, x = layer_of(3), torch.randn(4, 3, 2, 2, dtype=torch.float64)
    before = deepcopy(layer.state_dict())
    with norms.keep_statistics(layer):
        expected = layer(x)
        with norms.mode(layer, "train"):
            assert torch.equal(layer(x), expected)
        with norms.mode(layer, "running"):
            assert not torch.allclose(layer(x), expected)
    assert all(torch.equal(layer.state_dict()[key], before[key]) for key in before)
    layer(x)
    assert layer.num_batches_tracked == before["num_batches_tracked"] + 1


class Fused(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x).relu()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(2, 2), "no batch norm"),
        (norms.DualNorm(2), "DualNorm"),
        (nn.Sequential(Fused(2)), "'0' is a Fused"),
    ],
)
def test_what_cannot_be_perturbed_is_refused(model, words):
    with pytest.raises((ValueError, NotImplementedError), match=words):
        norms.check_perturbable(model)


def test_groups_that_do_not_divide_a_batch_are_refused():
    layer = layer_of(3)
    with (
        norms.perturbed(layer, {layer: shift_of(3)}, groups=3),
        pytest.raises(ValueError, match="4 samples do not divide into 3"),
    ):
        layer(torch.randn(4, 3, 2, 2, dtype=torch.float64))
