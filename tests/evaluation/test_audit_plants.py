"""Broken defenses: each raises the flag that names its fault; sound models raise none."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm.evaluation.checks import CHECKS, audit
from advnorm.evaluation.checks.auditor import ALL_CHECKS
from advnorm.models import Standardize
from advnorm.threat import Linf

EPS = 0.15
HEIGHT, LENGTH = 0.05, 0.01  # of a ripple that PGD cannot climb


class Wrapped(nn.Module):
    """A network behind something."""

    def __init__(self, net):
        super().__init__()
        self.net = net


class Softmax(Wrapped):
    def forward(self, x):
        return self.net(x).softmax(1)


class Scaled(Wrapped):
    def forward(self, x):
        return 10_000 * self.net(x)


class Quantized(Wrapped):
    def forward(self, x):
        return self.net((x * 7).round() / 7)


class StraightThrough(Wrapped):
    """Quantized, with a gradient that hides it."""

    def forward(self, x):
        return self.net(x + ((x * 7).round() / 7 - x).detach())


class Dropping(Wrapped):
    """Dropout that ignores evaluation."""

    def forward(self, x):
        return self.net(F.dropout(x, 0.1, training=True))


class Training(Wrapped):
    """Batch norm that ignores evaluation."""

    def train(self, mode=True):
        return super().train(True)

    def forward(self, x):
        return self.net(x)


class Detached(Wrapped):
    def forward(self, x):
        return self.net(x.detach())


class OneHot(Wrapped):
    def forward(self, x):
        logits = self.net(x)
        return F.one_hot(logits.argmax(1), logits.shape[1]).to(logits)


class Rippled(Wrapped):
    """A fine ripple in the input turns the gradient around; the answers stay."""

    def __init__(self, net, height=HEIGHT, length=LENGTH):
        super().__init__(net)
        self.height, self.length = height, length

    def forward(self, x):
        return self.net(x + self.height * torch.sin(2 * torch.pi * x / self.length))


class Coarse(Rippled):
    """A ripple that one long step climbs better than ten short ones."""

    def __init__(self, net):
        super().__init__(net, 0.02, 0.02)


class Adapting(Wrapped):
    """Takes steps on its own input before it answers."""

    def forward(self, x):
        with torch.enable_grad():
            inner = x.detach().clone().requires_grad_()
            entropy = -self.net(inner).log_softmax(1).amax(1).sum()
            (gradient,) = torch.autograd.grad(entropy, inner)
        return self.net(x - 0.01 * gradient.sign())


class Learning(Wrapped):
    """Takes steps on its own weights before it answers."""

    def forward(self, x):
        weights = [p for p in self.net.parameters() if p.ndim > 1]
        with torch.enable_grad():
            entropy = -self.net(x.detach()).log_softmax(1).amax(1).mean()
            gradients = torch.autograd.grad(entropy, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(1e-3 * gradient)
        return self.net(x)


class Overflowing(Wrapped):
    """The root of 0 has an infinite slope."""

    def forward(self, x):
        return self.net(x) + (x - x).abs().sqrt().flatten(1).sum(1, keepdim=True)


def bare(net):
    """Return a network whose standardization is left to the caller."""
    for name, layer in net.named_modules():
        if isinstance(layer, Standardize):
            net.set_submodule(name, nn.Identity())
            return net
    raise AssertionError("there is no standardization to remove")


PLANTS = {
    "softmax output": (Softmax, "softmax_output"),
    "logits x 10,000": (Scaled, "saturated_loss"),
    "logits x 10,000, no slope": (Scaled, "zero_gradients"),
    "quantized input": (Quantized, "piecewise_constant"),
    "quantized input, straight through": (StraightThrough, "piecewise_constant"),
    "dropout left on": (Dropping, "randomized"),
    "batch norm left in training": (Training, "batch_dependent"),
    "batch norm left moving": (Training, "dynamic"),
    "test-time optimization": (Adapting, "dynamic"),
    "test-time training": (Learning, "dynamic"),
    "standardization outside": (bare, "standardization_outside"),
    "detached graph": (Detached, "unavailable_gradients"),
    "infinite slope": (Overflowing, "unavailable_gradients"),
    "one-hot output": (OneHot, "one_hot_output"),
    "only PGD-10 fails": (Rippled, "false_robustness"),
}


SYMPTOMS = [
    (Dropping, "unstable_predictions"),
    (Dropping, "silent_success"),
    (Dropping, "transfer_failure"),
    (Scaled, "unconstrained_failure"),
    (Scaled, "above_chance_at_any_eps"),
    (Scaled, "black_box_stronger"),
    (Training, "incomplete_optimization"),
    (Training, "more_steps_help"),
    (Dropping, "more_restarts_help"),
    (Coarse, "one_step_stronger"),
]
"""What these do to attacks, beside the flag that names the fault."""


@pytest.fixture
def plain(trained):
    """Return a network of one's own, trained on clean images."""
    return deepcopy(trained("digits.standard"))


@pytest.fixture
def samples(digits_test):
    images, labels = digits_test
    return images[:100], labels[:100]


@pytest.mark.parametrize("defect", PLANTS)
def test_a_broken_defense_raises_its_own_flag(defect, plain, samples):
    plant, flag = PLANTS[defect]
    sound = audit(plain, *samples, Linf(EPS), checks=[flag])
    assert sound.flagged == (), sound
    record = audit(plant(plain), *samples, Linf(EPS), checks=[flag])
    assert record.flagged == (flag,), record


@pytest.mark.parametrize(
    "plant, flag", SYMPTOMS, ids=lambda value: getattr(value, "__name__", value)
)
def test_the_attacks_on_a_broken_defense_raise_flags_too(plant, flag, plain, samples):
    record = audit(plant(plain), *samples, Linf(EPS), checks=[flag])
    assert record.flagged == (flag,), record


def test_noise_that_breaks_more_than_a_blind_pgd_is_flagged(plain, samples):
    """Without a slope PGD stays at its start, inside the ball; noise goes to its corners."""
    record = audit(Scaled(plain), *samples, Linf(0.4), checks=["noise_stronger"])
    assert record.flagged == ("noise_stronger",), record


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("defect", PLANTS)
def test_a_whole_audit_of_a_broken_defense_ends_and_has_its_flag(defect, plain, samples):
    plant, flag = PLANTS[defect]
    record = audit(plant(plain), *samples, Linf(EPS))
    assert flag in record.flagged, record
    assert [check.name for check in record.checks] == list(ALL_CHECKS)


def test_the_plant_that_only_pgd_cannot_break(plain, samples):
    """Its accuracy under PGD-10 is false: stronger attacks break nearly all of it."""
    record = audit(Rippled(plain), *samples, Linf(EPS), checks=["false_robustness"])
    assert record.weak.fraction > 0.8 and record.strong.fraction < 0.2
    assert record.clean.fraction > 0.9
    names = ["black_box_stronger", "false_robustness"]
    assert audit(Rippled(plain), *samples, Linf(EPS), checks=names).flagged == tuple(names)


@pytest.mark.parametrize("name", ["digits.standard", "digits.pgd"])
def test_a_sound_model_raises_no_flag(name, trained, samples):
    record = audit(trained(name), *samples, Linf(EPS))
    assert record.flagged == (), record
    assert [c.name for c in record.checks if c.status == "not run"] == ["transfer_stronger"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "norm",
    ["{name: batch}", "{name: group, options: {groups: 4}}", "{name: none}"],
    ids=["batch", "group", "none"],
)
@pytest.mark.parametrize("name", ["digits.standard", "digits.pgd"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sound_models_of_any_norm_and_seed_raise_no_flag(
    name, norm, seed, trained, digits_test
):
    model = trained(name, f"norm={norm}", f"seed={seed}")
    record = audit(model, *digits_test, Linf(EPS), seed=seed)
    assert record.clean.fraction > 0.85, "the model did not learn, so it is not sound"
    assert record.flagged == (), record


def test_every_check_has_a_plant_or_a_test_of_its_own_and_a_place_in_the_order():
    assert sorted(ALL_CHECKS) == list(CHECKS)
