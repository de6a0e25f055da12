"""Residual blocks, shortcuts and initialization against hand cases."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from advnorm.models import build
from advnorm.models.cifar_resnet import BasicBlockA
from advnorm.models.fixup import FixupBlock
from advnorm.models.imagenet_resnet import BasicBlock, Bottleneck
from advnorm.models.layers import PadShortcut, shortcut_a
from advnorm.models.preact_resnet import PreActBlock
from advnorm.norms import NORMS

NONE = NORMS["none"]()


def zero(*layers: nn.Module) -> None:
    for layer in layers:
        nn.init.zeros_(layer.weight)


def test_shortcut_a_keeps_every_second_pixel_and_appends_zeros():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    output = PadShortcut(1, 3, stride=2)(image)
    assert output.tolist() == [
        [[[0.0, 2.0], [8.0, 10.0]], [[0.0] * 2] * 2, [[0.0] * 2] * 2]
    ]


def test_shortcut_a_has_the_size_of_a_strided_convolution_on_odd_images():
    image = torch.rand(1, 2, 7, 5)
    conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
    assert shortcut_a(2, 4, stride=2)(image).shape == conv(image).shape


def test_shortcut_a_is_the_identity_where_shapes_agree():
    assert type(shortcut_a(4, 4, stride=1)) is nn.Identity


def test_block_with_an_empty_branch_is_its_shortcut():
    image = torch.randn(2, 4, 6, 6)
    after, before = (
        BasicBlockA(4, 4, stride=1, norm=NONE),
        PreActBlock(4, 4, stride=1, norm=NONE),
    )
    zero(after.conv2, before.conv2)
    assert torch.equal(after(image), image.relu())
    assert torch.equal(before(image), image)


def test_preactivation_block_projects_the_activated_input():
    image = torch.randn(2, 4, 6, 6)
    block = PreActBlock(4, 8, stride=2, norm=NONE)
    zero(block.conv2)
    expected = nn.functional.conv2d(image.relu(), block.shortcut.weight, stride=2)
    torch.testing.assert_close(block(image), expected)


def test_preactivation_block_by_hand():
    # x = 2, a = 2, conv1 = -1 * a, ReLU = 0: only the skip is left; with +1, 2 + 3 * 2.
    block = PreActBlock(1, 1, stride=1, norm=NONE)
    zero(block.conv1, block.conv2)
    block.conv2.weight.data[0, 0, 1, 1] = 3
    for weight, expected in ((-1, 2.0), (1, 8.0)):
        block.conv1.weight.data[0, 0, 1, 1] = weight
        assert block(torch.full((1, 1, 1, 1), 2.0)).item() == expected


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_projection_shortcut_only_for_a_new_shape(block):
    width = 4 * block.expansion
    assert type(block(width, 4, stride=1, norm=NONE).shortcut) is nn.Identity
    changed = block(width, 4, stride=2, norm=NORMS["batch"]())
    assert changed(torch.randn(2, width, 6, 6)).shape == (2, width, 3, 3)
    assert [type(layer).__name__ for layer in changed.shortcut] == ["Conv2d", "BatchNorm"]


def test_stride_of_a_bottleneck_is_in_its_middle():
    block = Bottleneck(16, 4, stride=2, norm=NONE)
    assert [conv.stride[0] for conv in (block.conv1, block.conv2, block.conv3)] == [1, 2, 1]


def test_he_initialization_has_variance_two_over_fan_out():
    model = build("preact_resnet18", shape=(3, 32, 32), classes=10, norm=NORMS["batch"]())
    for conv in (
        m for m in model.modules() if isinstance(m, nn.Conv2d) and m.in_channels > 3
    ):
        fan_out = conv.out_channels * conv.kernel_size[0] ** 2
        assert conv.weight.var().item() == pytest.approx(2 / fan_out, rel=0.1)


def fixup(name: str) -> nn.Module:
    return build(name, shape=(3, 16, 16), classes=10, norm=NONE)


@pytest.mark.parametrize(
    "name", ["fixup_resnet20", "fixup_resnet110", "fixup_wide_resnet40_2"]
)
def test_fixup_starts_with_zero_logits_and_identity_branches(name):
    model = fixup(name)
    assert not model(torch.rand(2, 3, 16, 16)).any()
    after = name.startswith("fixup_resnet")
    for block in (m for m in model.modules() if isinstance(m, FixupBlock)):
        image = torch.randn(2, block.conv1.in_channels, 4, 4)
        skip = (
            image
            if block.shortcut is None
            else block.shortcut(image if after else image.relu())
        )
        assert torch.equal(block(image), skip.relu() if after else skip)


@pytest.mark.parametrize(
    ("name", "branches"), [("fixup_resnet20", 9), ("fixup_wide_resnet40_2", 18)]
)
def test_fixup_scales_the_first_layer_of_each_branch(name, branches):
    blocks = [m for m in fixup(name).modules() if isinstance(m, FixupBlock)]
    assert len(blocks) == branches
    for block in blocks:
        expected = 2 / (9 * block.conv1.out_channels) / branches
        assert block.conv1.weight.var().item() == pytest.approx(expected, rel=0.15)


def test_fixup_scalars_start_neutral():
    scalars = {
        key.rpartition(".")[2]: float(p.detach())
        for key, p in fixup("fixup_resnet20").named_parameters()
        if p.numel() == 1
    }
    assert scalars == {"bias": 0.0, "scale": 1.0}


@pytest.mark.parametrize("name", ["fixup_resnet20", "fixup_wide_resnet40_2"])
def test_at_fixup_init_only_the_classifier_has_a_gradient(name):
    model = fixup(name)
    nn.functional.cross_entropy(model(torch.rand(4, 3, 16, 16)), torch.arange(4)).backward()
    moved = {
        key for key, p in model.named_parameters() if p.grad is not None and p.grad.any()
    }
    assert moved == {"classifier.weight", "classifier.bias"}


def test_dropout_is_between_the_convolutions_and_off_in_evaluation():
    model = build(
        "wide_resnet",
        shape=(3, 8, 8),
        classes=3,
        norm=NONE,
        options={"depth": 10, "widen": 1, "dropout": 0.5},
    )
    images = torch.rand(2, 3, 8, 8)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))


def test_linear_normalizes_its_inputs():
    model = build("linear", shape=(2,), classes=2, norm=NORMS["batch"](eps=1e-9))
    model.classifier.weight.data = torch.eye(2)
    nn.init.zeros_(model.classifier.bias)
    output = model(torch.tensor([[0.0, 10.0], [2.0, 30.0]]))
    torch.testing.assert_close(output, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))


@pytest.mark.parametrize(
    ("start", "variance"), [("uniform", 1 / (3 * 784)), ("normal", 2 / (784 + 200))]
)
def test_linear_starts_with_the_variance_it_states(start, variance):
    model = build(
        "linear",
        shape=(1, 28, 28),
        classes=200,
        norm=NORMS["none"](),
        options={"start": start},
    )
    weights = model.classifier.weight.detach()
    assert abs(float(weights.var()) / variance - 1) < 0.03  # over 8 standard errors
    bounded = bool(weights.abs().max() <= (3 * variance) ** 0.5)
    assert bounded is (start == "uniform")


@pytest.mark.parametrize(("start", "kept"), [("he", True), ("uniform", False)])
def test_a_signal_passes_a_deep_perceptron_from_he_initialization_only(start, kept):
    torch.manual_seed(0)
    given = {"width": 256, "depth": 30, "start": start}
    model = build("mlp", shape=(256,), classes=10, norm=NORMS["none"](), options=given)
    one, other = torch.randn(2, 64, 256)
    apart = (model(one) - model(other)).detach().var()
    assert (apart > 0.01) == kept
    assert not kept or apart < 100


def test_linear_may_start_from_nothing():
    options = {"start": "zeros"}
    model = build("linear", shape=(1, 4, 4), classes=3, norm=NONE, options=options)
    assert all(bool((p == 0).all()) for p in model.parameters())


def test_a_deep_network_without_activation_is_linear():
    given = {"width": 5, "depth": 3, "activation": "none"}
    model = build("mlp", shape=(4,), classes=2, norm=NORMS["none"](), options=given)
    one, other = torch.randn(2, 6, 4)
    summed = model(one) + model(other) - model(torch.zeros(6, 4))
    torch.testing.assert_close(model(one + other), summed)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"start": "glorot"}, "uniform or he, not 'glorot'"),
        ({"activation": "tanh"}, "relu or none, not 'tanh'"),
    ],
)
def test_mlp_refuses_what_it_does_not_know(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        build("mlp", shape=(2,), classes=2, norm=NORMS["none"](), options=given)


@pytest.mark.parametrize(
    ("name", "features"),
    [("lenet5", [32, 64]), ("cnn_cleverhans", [32, 64]), ("cnn_small", [16, 32, 100]),
     ("cnn_medium", [32, 32, 64, 64, 512, 512]), ("cnn_large", [64, 64, 128, 128, 128, 512]),
     ("mlp", [1000, 1000]), ("vgg8", [64, 128, 256, 512, 512])],
)  # fmt: skip
def test_norms_are_where_the_papers_put_them(name, features):
    with torch.device("meta"):
        model = build(name, shape=(1, 32, 32), classes=10, norm=NORMS["batch"]())
    layers = [m for m in model.modules() if not list(m.children())]
    layers = [m for m in layers if not isinstance(m, nn.MaxPool2d)]  # it commutes with ReLU
    norms = [i for i, layer in enumerate(layers) if hasattr(layer, "running_mean")]
    assert [layers[i].num_features for i in norms] == features
    assert all(type(layers[i + 1]) is nn.ReLU for i in norms)
    assert all(type(layers[i - 1]) in (nn.Conv2d, nn.Linear) for i in norms)


def test_lenet_is_the_published_one_in_values_and_gradients():
    """It rectifies after pooling, AdverTorch's before."""
    generator = torch.Generator().manual_seed(0)
    model = build("lenet5", shape=(1, 28, 28), classes=10, norm=NORMS["batch"]()).double()
    images = torch.rand(4, 1, 28, 28, dtype=torch.float64, generator=generator)
    parameters = dict(model.named_parameters())

    def published(x):
        for layer in ("1", "2"):
            x = functional.conv2d(
                x,
                parameters[f"conv{layer}.weight"],
                parameters[f"conv{layer}.bias"],
                padding=1,
            )
            scale, shift = (
                parameters[f"norm{layer}.weight"],
                parameters[f"norm{layer}.bias"],
            )
            x = functional.batch_norm(x, None, None, scale, shift, training=True)
            x = functional.max_pool2d(functional.relu(x), 2)
        x = x.flatten(1) @ parameters["hidden.weight"].T + parameters["hidden.bias"]
        return functional.linear(
            functional.relu(x),
            parameters["classifier.weight"],
            parameters["classifier.bias"],
        )

    ours, theirs = model(images), published(images)
    torch.testing.assert_close(ours, theirs)
    target = torch.randn(4, 10, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(
        torch.autograd.grad((ours * target).sum(), list(parameters.values())),
        torch.autograd.grad((theirs * target).sum(), list(parameters.values())),
    )


@pytest.mark.parametrize(("depth", "norm"), [(18, "batch"), (50, "mixture"), (50, "group")])
def test_goyals_start_makes_a_block_its_shortcut(depth, norm):
    torch.manual_seed(0)
    options = {"width": 8, "start": "goyal"}
    made = {
        "shape": (3, 32, 32),
        "classes": 7,
        "norm": NORMS[norm](),
    }
    model = build(f"resnet{depth}", options=options, **made).eval()
    image = torch.randn(2, 32 if depth == 50 else 8, 6, 6)
    block = model.blocks[1]
    torch.testing.assert_close(block(image), image.relu())
    end = model.classifier
    assert not end.bias.any() and 0.005 < float(end.weight.detach().std()) < 0.015
    with pytest.raises(ValueError, match="starts he or goyal, not 'she'"):
        build(f"resnet{depth}", options={"width": 8, "start": "she"}, **made)


def test_the_end_and_the_start_of_a_preactivation_network():
    made = {"shape": (3, 32, 32), "classes": 10, "norm": NORMS["batch"]()}
    bare = build("preact_resnet18", options={"end": "none", "start": "uniform"}, **made)
    assert sum(p.numel() for p in bare.parameters()) == 11_172_170 - 1024
    names = [name for name, _ in bare.named_children()]
    assert names[-4:] == ["blocks", "pool", "flatten", "classifier"]
    limit = 27**-0.5  # PyTorch's own: uniform up to 1 / sqrt(fan-in)
    assert 0.9 * limit < float(bare.stem.weight.detach().abs().max()) <= limit
    for options in ({"end": "relu"}, {"start": "zeros"}):
        with pytest.raises(ValueError, match="ends in norm or none and starts he or"):
            build("preact_resnet18", options=options, **made)
