"""Backward passes are replaced for a block; forward passes never are."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm.attacks import pgd
from advnorm.evaluation import adapted
from advnorm.surrogates import SURROGATES, find_slots, substituted
from advnorm.threat import L2, Linf


class Round(nn.Module):
    """Seven steps; no gradient."""

    def forward(self, x):
        return (7 * x).round() / 7


class NumPyRound(nn.Module):
    """The same outside of torch: a tensor that requires a gradient is refused there."""

    def forward(self, x):
        return torch.from_numpy((7 * x.numpy()).round() / 7)


def linear(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, classes)).double()


def gradient(logits_fn, x, labels):
    x = x.clone().requires_grad_()
    loss = F.cross_entropy(logits_fn(x), labels, reduction="sum")
    (grad,) = torch.autograd.grad(loss, x)
    return grad


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(12, 1, 4, 4, generator=generator, dtype=torch.float64)
    return images, torch.arange(12) % 3


@pytest.mark.parametrize("threat", [Linf(0.2), L2(0.5)])
@pytest.mark.parametrize("quantizer", [Round, NumPyRound])
def test_through_a_quantizer_the_attack_is_that_of_the_linear_model(
    samples, threat, quantizer
):
    """With two classes the gradient of a margin is constant, wherever it is taken."""
    images, labels = samples
    plain = linear(classes=2)
    masked = nn.Sequential(quantizer(), plain)
    settings = {"steps": 20, "step_size": threat.eps / 4, "clean_start": 1.0}
    sides = labels % 2

    def margin(logits_fn, clean, labels, draws):
        rows = torch.arange(len(labels))
        return lambda logits: logits[rows, 1 - labels] - logits[rows, labels]

    reference = pgd(plain, images, sides, threat, goal=margin, **settings)
    logits_fn = adapted(masked, {"0": "identity"}, images)
    through = pgd(logits_fn, images, sides, threat, goal=margin, **settings)
    assert torch.equal(through, reference)


def test_forward_is_that_of_the_layer_and_backward_that_of_the_surrogate(samples):
    images, labels = samples
    net = linear()
    masked = nn.Sequential(Round(), net)
    slots = find_slots(masked, {"0": lambda x: 3 * x})
    with substituted(slots):
        assert torch.equal(masked(images.requires_grad_()), masked[1](Round()(images)))
        grad = gradient(masked, images.detach(), labels)
    at_rounded = gradient(net, Round()(images.detach()), labels)
    torch.testing.assert_close(grad, 3 * at_rounded)
    assert not gradient(masked, images.detach(), labels).any()  # restored


def test_layers_are_restored_after_an_error_and_keep_a_forward_of_their_own():
    masked = nn.Sequential(Round(), linear())
    own = lambda x: x  # noqa: E731
    masked[0].forward = own
    with (
        pytest.raises(ZeroDivisionError),
        substituted(find_slots(masked, {"0": "identity"})),
    ):
        assert masked[0].forward is not own
        raise ZeroDivisionError
    assert masked[0].forward is own
    assert "forward" not in vars(masked[1])


def test_a_layer_runs_without_gradients_as_in_a_verdict(samples):
    """One that answers otherwise where gradients are enabled does not do so here."""

    class Switch(nn.Module):
        def forward(self, x):
            return -x if torch.is_grad_enabled() or x.requires_grad else x

    images, _ = samples
    masked = nn.Sequential(Switch(), linear())
    with substituted(find_slots(masked, {"Switch": "identity"})):
        searched = masked(images.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(searched, masked(images))


def test_layers_by_name_by_class_and_by_the_name_of_a_class():
    masked = nn.Sequential(Round(), nn.Sequential(nn.ReLU(), nn.ReLU()))
    for key in ("1.0", nn.ReLU, "ReLU"):
        names = [slot.name for slot in find_slots(masked, {key: "identity"})]
        assert names == (["1.0"] if key == "1.0" else ["1.0", "1.1"])


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ({"Rund": "identity"}, "no layer 'Rund': the nearest names are 'Round'"),
        ({"zzz": "identity"}, "no layer 'zzz': name one of"),
        ({nn.Tanh: "identity"}, "no layer 'Tanh'"),
        ({0: "identity"}, "the name or class of a layer"),
        ({"0": "identiti"}, "no surrogate 'identiti': did you mean 'identity'"),
        ({"0": 3}, "surrogate of layer '0' is a int"),
        ({"0": "identity", "Round": "tanh"}, "layer '0' has two surrogates"),
    ],
)
def test_what_names_no_layer_or_no_surrogate_is_refused(layers, words):
    masked = nn.Sequential(Round(), nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match=words):
        find_slots(masked, layers)


@pytest.mark.parametrize(
    ("surrogate", "words"),
    [
        (
            lambda x: x[:, :, 1:],
            r"returns shape \(12, 1, 3, 4\), the layer \(12, 1, 4, 4\)",
        ),
        (lambda x: [x], "returns a list: return one tensor"),
        (lambda x: x.detach(), "no gradient reaches the images past '0'"),
    ],
)
def test_a_surrogate_that_does_not_fit_is_refused(samples, surrogate, words):
    masked = nn.Sequential(Round(), linear())
    with pytest.raises(ValueError, match=words):
        adapted(masked, {"0": surrogate}, samples[0])


def test_a_layer_that_is_not_called_and_a_function_are_refused(samples):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.idle, self.net = nn.ReLU(), linear()

        def forward(self, x):
            return self.net(x)

    with pytest.raises(ValueError, match="'idle' is not called in a pass"):
        adapted(Idle(), {"idle": "identity"}, samples[0])
    with pytest.raises(ValueError, match="has no layers of its own"):
        adapted(lambda x: linear()(x), {"0": "identity"}, samples[0])


@pytest.mark.parametrize("name", list(SURROGATES))
def test_every_surrogate_keeps_the_shape_and_has_a_gradient(name):
    x = torch.linspace(-0.9, 0.9, 12).view(3, 4).requires_grad_()
    y = SURROGATES[name](x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert y.shape == x.shape
    assert (grad > 0).all()
