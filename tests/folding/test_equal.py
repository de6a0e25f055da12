"""A folded model has the logits and the input gradients of the plain one."""

import pytest
import torch
from small_models import NAMES, SHAPES, build, images_of
from torch import nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.folding import fast_logits, fast_path
from advnorm.folding.feature_maps import FeatureMap
from advnorm.folding.steps import Layout, folded
from advnorm.image_gradients import pays


def gradient(logits_fn, images):
    x = images.clone().requires_grad_()
    labels = torch.arange(len(x)) % 3
    return torch.autograd.grad(F.cross_entropy(logits_fn(x), labels), x)[0]


@pytest.mark.parametrize("norm", NAMES)
@pytest.mark.parametrize("name", SHAPES)
def test_logits_and_gradients_are_those_of_the_plain_model(name, norm):
    model, images = build(name, norm), images_of(name)
    for domain in ("clean", "adversarial"):
        with norms.route(model, domain=domain):
            fast = fast_logits(model, images)
            assert fast is not None
            with torch.no_grad():
                torch.testing.assert_close(fast(images), model(images), rtol=0, atol=1e-9)
            plain = gradient(model, images)
            torch.testing.assert_close(gradient(fast, images), plain, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["mixture", "affine"])
def test_each_branch_has_logits_of_its_own(norm):
    model, images = build("cnn_small", norm), images_of("cnn_small")
    logits = []
    for domain in ("clean", "adversarial"):
        with norms.route(model, domain=domain), torch.no_grad():
            logits.append(fast_logits(model, images)(images))
    assert (logits[0] - logits[1]).abs().amax() > 0.1


@pytest.mark.parametrize("name", SHAPES)
def test_single_precision_is_equal_to_rounding(name):
    model, images = build(name, "batch", torch.float32), images_of(name, torch.float32)
    fast = fast_logits(model, images)
    with torch.no_grad():
        plain = model(images)
        assert (fast(images) - plain).abs().amax() <= 1e-5 * plain.abs().amax()


def test_bfloat16_passes_are_near_and_return_the_precision_of_the_images():
    name = "cnn_small"
    model, images = build(name, "batch", torch.float32), images_of(name, torch.float32)
    fast = fast_logits(model, images, "bfloat16")
    with torch.no_grad():
        plain, half = model(images), fast(images)
    assert half.dtype == torch.float32
    error = (half - plain).abs().amax() / plain.abs().amax()
    assert 1e-5 < error < 0.1
    assert gradient(fast, images).dtype == torch.float32


@pytest.mark.parametrize("norm", ["dual", "group"])
def test_norms_that_do_not_fold_take_and_return_bfloat16(norm):
    name = "preact_resnet18"
    model, images = build(name, norm, torch.float32), images_of(name, torch.float32)
    fast = fast_logits(model, images, "bfloat16")
    with torch.no_grad():
        plain = model(images)
        assert (fast(images) - plain).abs().amax() < 0.25 * plain.abs().amax()


def test_a_map_on_each_side_of_a_layer_by_hand():
    layer = nn.Linear(2, 1, bias=True).double()
    layer.weight.data = torch.tensor([[2.0, 3.0]]).double()
    layer.bias.data = torch.tensor([5.0]).double()
    before = FeatureMap(torch.tensor([10.0, 1.0]), torch.tensor([1.0, -1.0]))
    after = FeatureMap(torch.tensor([2.0]), torch.tensor([7.0]))
    weight, bias = folded(layer, before, after)  # 2 (2 (10x + 1) + 3 (y - 1) + 5) + 7
    assert weight.tolist() == [[40.0, 6.0]]
    assert bias.tolist() == [15.0]


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(4, 2, 0, 1), (3, 1, 1, 1), ((2, 3), (1, 2), (0, 1), (2, 1)), (5, 3, 2, 1)],
)
def test_gradients_of_grey_images_by_columns(kernel, stride, padding, dilation):
    torch.manual_seed(0)
    conv = nn.Conv2d(1, 5, kernel, stride, padding, dilation)
    images = torch.rand(6, 1, 13, 11)
    assert pays(conv.weight, conv.stride)
    for layers in ([conv], [conv, nn.ReLU()]):
        model = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3)).eval()
        model(images)
        plain = gradient(model, images)
        fast = gradient(fast_logits(model, images), images)
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-7)


def test_norm_before_a_padded_convolution_stays_a_map():
    """The padding is zero after the norm: folded in front it would be another number."""
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1), nn.Flatten())
    model = model.double().eval()
    model[0].running_mean.fill_(0.7)
    images = torch.rand(5, 3, 6, 6).double()
    fast = fast_logits(model, images)
    assert [type(s).__name__ for s in _steps(model, images)] == [
        "MapStep",
        "ProductStep",
        "LayerStep",
    ]
    with torch.no_grad():
        torch.testing.assert_close(fast(images), model(images), rtol=0, atol=1e-12)


class Reshaped(nn.Module):
    """A convolution whose maps a linear layer reads as rows, reshaped in some way."""

    def __init__(self, way):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.rows, self.linear, self.way = nn.Flatten(), nn.Linear(4 * 4 * 5, 7), way

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        if self.way == "layer":
            return self.linear(self.rows(y))
        if self.way == "flatten":
            return self.linear(torch.flatten(y, 1))
        if self.way == "view":
            return self.linear(y.view(y.size(0), -1))
        if self.way == "reshape":
            return self.linear(y.reshape(x.shape[0], 80))
        if self.way == "transposed":
            return self.linear(y.transpose(1, 2).flatten(1))
        rows = y.flatten(1)  # read twice
        return self.linear(rows) + rows[:, :7] + y.mean((2, 3)).sum(1, keepdim=True)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "way", ["layer", "flatten", "view", "reshape", "transposed", "twice"]
)
def test_a_linear_layer_reads_maps_in_the_order_of_the_model(
    way, channels_last, monkeypatch
):
    monkeypatch.setattr(
        fast_path, "layout_of", lambda plan, images: Layout(images.dtype, channels_last)
    )
    torch.manual_seed(0)
    model, images = Reshaped(way).double().eval(), torch.rand(5, 3, 6, 7).double()
    model.norm.running_mean.normal_()
    joined = any(getattr(step, "maps", None) for step in _steps(model, images))
    assert joined == (way != "twice")
    fast = fast_logits(model, images)
    assert fast is not None
    with torch.no_grad():
        torch.testing.assert_close(fast(images), model(images), rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient(fast, images), gradient(model, images))


def test_value_that_is_read_twice_is_not_overwritten():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
            self.relu = nn.ReLU()

        def forward(self, x):
            y = self.conv(x)
            return (self.relu(self.norm(y)) + self.relu(y) + y + y).flatten(1)

    model, images = Twice().double().eval(), torch.rand(5, 3, 6, 6).double()
    model.norm.running_mean.fill_(0.3)
    fast = fast_logits(model, images)
    with torch.no_grad():
        torch.testing.assert_close(fast(images), model(images), rtol=0, atol=1e-12)


def test_moved_weights_are_folded_anew():
    model, images = build("resnet20", "batch"), images_of("resnet20")
    stale = fast_logits(model, images)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
        moved = fast_logits(model, images)(images)
        torch.testing.assert_close(moved, model(images), rtol=0, atol=1e-9)
        assert (stale(images) - moved).abs().amax() > 1e-3


def _steps(model, images):
    from advnorm.folding.fast_path import _plan_of

    return list(_plan_of(model, images, fresh=False).steps.values())
