"""A model that the folded form may not equal is searched as it is; nothing is changed."""

import pytest
import torch
from small_models import build, images_of
from torch import nn

from advnorm import norms
from advnorm.folding import fast_logits, fast_path
from advnorm.folding import plan as planning
from advnorm.folding.feature_maps import map_of_norm

NAME = "cnn_small"


@pytest.fixture
def images():
    return images_of(NAME)


def test_hooks_are_not_passed_over(images):
    model = build(NAME, "batch")
    assert fast_logits(model, images) is not None
    handle = model.convolutions[1].register_forward_hook(lambda m, i, o: 2 * o)
    assert fast_logits(model, images) is None
    handle.remove()
    assert fast_logits(model, images) is not None


def test_batch_statistics_are_not_folded(images):
    model = build(NAME, "batch")
    for mode in ("batch", "train"):
        with norms.mode(model, mode):
            assert fast_logits(model, images) is None
    with norms.mode(model.train(), "running"):
        assert fast_logits(model, images) is not None


def test_half_a_batch_of_each_domain_is_not_folded(images):
    model = build(NAME, "mixture")
    with norms.route(model, clean=3):
        assert fast_logits(model, images) is None


def test_active_dropout_is_not_folded(images):
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(196, 3)).double()
    assert fast_logits(model.train(), images) is None
    assert fast_logits(model.eval(), images) is not None


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(196, 3), 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return self.linear(x.flatten(1))


class Attribute(Counting):
    def forward(self, x):
        self.calls += 1
        return self.linear(x.flatten(1))


class Noisy(Counting):
    def forward(self, x):
        return self.linear(x.flatten(1)) + 1e-9 * torch.rand(3)


class Branching(Counting):
    def forward(self, x):
        return self.linear(x.flatten(1)) * (2 if x.sum() > 0 else 1)


class Failing(Counting):
    def forward(self, x):
        assert type(x) is torch.Tensor, "no proxies"
        return self.linear(x.flatten(1))


@pytest.mark.parametrize("kind", [Counting, Attribute, Noisy, Branching, Failing])
def test_models_with_a_forward_of_their_own_are_left_alone(kind, images):
    model = kind().double().eval()
    before, random = model.seen.clone(), torch.get_rng_state()
    assert fast_logits(model, images) is None
    assert torch.equal(model.seen, before)
    assert torch.equal(torch.get_rng_state(), random)


def test_an_attribute_that_changes_is_seen(images):
    class Scaled(Counting):
        factor = 1.0

        def forward(self, x):
            return self.linear(x.flatten(1)) * self.factor

    model = Scaled().double().eval()
    for factor in (1.0, 3.0):
        model.factor = factor
        fast = fast_logits(model, images)
        with torch.no_grad():
            torch.testing.assert_close(fast(images), model(images))


def test_other_precisions_and_autocast_are_left_alone(images):
    model = build(NAME, "batch", torch.float32)
    assert fast_logits(model, images) is None  # images in float64
    single = images.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast_logits(model, single) is None
        assert fast_logits(model, single, "bfloat16") is not None
    assert fast_logits(model.bfloat16(), single.bfloat16()) is None


def test_logits_that_are_not_finite_are_left_to_the_plain_model(images):
    model = build(NAME, "batch")
    model.classifier.weight.data[0, 0] = torch.nan
    assert fast_logits(model, images) is None


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_nothing_of_the_model_is_touched(precision):
    model = build("preact_resnet18", "mixture", torch.float32).train()
    images = images_of("preact_resnet18", torch.float32)
    model(images)  # sets what norms remember of their input
    before = {name: t.clone() for name, t in model.state_dict().items()}
    random = torch.get_rng_state()
    with norms.mode(model, "running"):
        flags = [(m.training, dict(vars(m))) for m in model.modules()]
        fast = fast_logits(model, images, precision)
        x = images.clone().requires_grad_()
        fast(x).sum().backward()
        assert [(m.training, dict(vars(m))) for m in model.modules()] == flags
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def wrong_eps(layer, constants):
    norm = layer.branch("adversarial") if hasattr(layer, "branch") else layer
    norm.eps += 1e-2
    try:
        return map_of_norm(layer, constants)
    finally:
        norm.eps -= 1e-2


def clean_branch(layer, constants):
    return map_of_norm(layer.clean, constants)


def no_shift(layer, constants):
    each = map_of_norm(layer, constants)
    return each._replace(shift=0 * each.shift)


@pytest.mark.parametrize("fault", [wrong_eps, clean_branch, no_shift])
def test_planted_faults_of_maps_are_not_used(fault, images, monkeypatch):
    monkeypatch.setattr(planning.maps, "map_of_norm", fault)
    assert fast_logits(build(NAME, "mixture"), images) is None


def test_planted_fault_of_padding_is_not_used(monkeypatch):
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1), nn.Flatten())
    model = model.double().eval()
    model[0].running_mean.fill_(0.7)
    images = torch.rand(5, 3, 6, 6).double()
    monkeypatch.setattr(planning, "is_padded", lambda layer: False)
    assert fast_logits(model, images) is None


def test_planted_stale_weights_are_not_used(images, monkeypatch):
    model = build(NAME, "batch")
    plan = fast_path._plan_of(model, images, fresh=True)
    stale = plan.bind(model, fast_path.layout_of(plan, images))
    monkeypatch.setattr(planning.FoldingPlan, "bind", lambda *_: stale)
    assert fast_logits(model, images) is not None
    with torch.no_grad():
        model.convolutions[0].weight.mul_(1.001)
    assert fast_logits(model, images) is None


def test_a_model_of_shapes_alone_is_not_folded():
    """A forecast of costs runs steps on tensors without values."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval().to("meta")
    assert fast_logits(model, torch.empty(2, 1, 2, 2, device="meta")) is None
