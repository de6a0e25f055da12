"""The faster gradient of images is the gradient, and forward passes stay as they are."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import advnorm
from advnorm import attacks
from advnorm.draws import Draws
from advnorm.evaluation.engine import logits_of
from advnorm.image_gradients import faster_image_gradients

WINDOWS = [
    # channels, kernel, stride, padding, dilation, size
    (1, (3, 3), 1, 1, 1, (7, 9)),
    (1, (4, 4), 2, 1, 1, (28, 28)),
    (1, (5, 2), (3, 1), (0, 1), 1, (11, 10)),
    (1, (3, 3), 2, 2, 2, (9, 12)),
    (3, (7, 7), 2, 3, 1, (16, 15)),
    (4, (1, 1), 2, 0, 1, (6, 7)),  # pixels between the windows have no gradient
    (3, (3, 3), 1, 1, 1, (8, 8)),  # the library's own
    (8, (3, 3), 2, 1, 1, (8, 8)),  # the library's own
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("setting", WINDOWS, ids=str)
def test_gradients_are_those_of_the_library(setting, layout):
    channels, kernel, stride, padding, dilation, size = setting
    torch.manual_seed(0)
    images = torch.rand(3, channels, *size, dtype=torch.float64)
    images = images.contiguous(memory_format=layout).requires_grad_()
    weight = torch.randn(6, channels, *kernel, dtype=torch.float64)
    arguments = (weight, torch.randn(6).double(), stride, padding, dilation)
    plain = F.conv2d(images, *arguments)
    with faster_image_gradients(images):
        faster = F.conv2d(images, *arguments)
    assert torch.equal(plain, faster)
    upstream = torch.randn_like(plain)
    for result in (plain, faster):
        images.grad = None
        result.backward(upstream, retain_graph=True)
    (expected,) = torch.autograd.grad(plain, images, upstream)
    torch.testing.assert_close(images.grad, expected, rtol=1e-12, atol=1e-12)


def kinds(logits):
    """Return the names of the nodes of a graph."""
    names, todo = set(), [logits.grad_fn]
    while todo:
        node = todo.pop()
        names.add(type(node).__name__)
        todo += [parent for parent, _ in node.next_functions if parent]
    return names


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)
    )


@pytest.mark.parametrize("frozen", [True, False])
def test_only_frozen_weights_are_without_a_gradient(frozen):
    model, images = network(), torch.rand(2, 1, 8, 8)
    model(images)
    model.requires_grad_(not frozen)
    logits = logits_of(model)(images.requires_grad_())
    assert ("_FewChannelsBackward" in kinds(logits)) == frozen
    if not frozen:
        logits.sum().backward()
        assert model[0].weight.grad.abs().sum() > 0


def test_no_mode_is_left_and_plain_passes_are_not_touched():
    model, images = network(), torch.rand(2, 1, 8, 8)
    expected = model(images)
    model.requires_grad_(requires_grad=False)
    assert torch.equal(logits_of(model)(images), expected)
    logits_of(model)(images.requires_grad_())
    assert "_FewChannelsBackward" not in kinds(model(images))


def test_a_second_derivative_is_that_of_the_library():
    weight = torch.randn(2, 1, 3, 3, dtype=torch.float64)

    def energy(images):
        with faster_image_gradients(images):
            return F.conv2d(images, weight, None, 2, 1).pow(3).sum()

    images = torch.rand(1, 1, 5, 5, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(energy, images)
    plain = torch.autograd.functional.hessian(
        lambda x: F.conv2d(x, weight, None, 2, 1).pow(3).sum(), images
    )
    torch.testing.assert_close(hessian, plain)


@pytest.mark.slow
def test_a_compiled_model_is_attacked_as_the_plain_one():
    model, images = network(), torch.rand(6, 1, 8, 8)
    labels = model(images).argmax(1)
    results = [
        advnorm.evaluate(each, images, labels, advnorm.Linf(0.3), conditions=["pgd-5"])
        for each in (model, torch.compile(model, backend="eager"))
    ]
    assert results[0].verdicts == results[1].verdicts


@pytest.mark.parametrize("attack", [attacks.apgd_t, attacks.fab_t, attacks.pgd])
def test_an_attack_returns_the_images_of_plain_gradients(attack):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, 2, 1), nn.Tanh(), nn.Flatten(), nn.Linear(96, 5)
    )
    model.double().requires_grad_(requires_grad=False)
    images = torch.rand(12, 1, 8, 8, dtype=torch.float64)
    labels, threat = model(images).argmax(1), advnorm.Linf(0.03)
    run = {"steps": 10, "draws": Draws.of(0, torch.arange(12))}
    run |= {"step_size": 0.01} if attack is attacks.pgd else {}
    plain, faster = (
        attack(each, images, labels, threat, **run) for each in (model, logits_of(model))
    )
    assert 0 < (model(plain).argmax(1) == labels).sum() < 12
    torch.testing.assert_close(faster, plain, rtol=0, atol=1e-9)
