"""Residual blocks, shortcuts and the initialization of residual networks, by hand."""

import pytest
import torch
from torch import nn

from advnorm.models import build
from advnorm.models.residual import (
    BasicBlock,
    Bottleneck,
    PadShortcut,
    PreActBlock,
    pad_shortcut,
)
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
    assert pad_shortcut(2, 4, stride=2)(image).shape == conv(image).shape


def test_shortcut_a_is_the_identity_where_shapes_agree():
    assert type(pad_shortcut(4, 4, stride=1)) is nn.Identity


def test_block_with_an_empty_branch_is_its_shortcut():
    image = torch.randn(2, 4, 6, 6)
    after, before = (
        BasicBlock(4, 4, stride=1, norm=NONE, shortcut=pad_shortcut),
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


@pytest.mark.parametrize(("depth", "norm"), [(18, "batch"), (50, "mixture"), (50, "group")])
def test_goyals_start_makes_a_block_its_shortcut(depth, norm):
    torch.manual_seed(0)
    options = {"width": 8, "start": "goyal"}
    settings = {"shape": (3, 32, 32), "classes": 7, "norm": NORMS[norm]()}
    model = build(f"resnet{depth}", options=options, **settings).eval()
    image = torch.randn(2, 32 if depth == 50 else 8, 6, 6)
    block = model.blocks[1]
    torch.testing.assert_close(block(image), image.relu())
    end = model.classifier
    assert not end.bias.any() and 0.005 < float(end.weight.detach().std()) < 0.015
    with pytest.raises(
        ValueError, match=r"'start' of model .*: 'she' should be 'he' or 'goyal'"
    ):
        build(f"resnet{depth}", options={"width": 8, "start": "she"}, **settings)


def test_the_end_and_the_start_of_a_preactivation_network():
    settings = {"shape": (3, 32, 32), "classes": 10, "norm": NORMS["batch"]()}
    bare = build("preact_resnet18", options={"end": "none", "start": "uniform"}, **settings)
    assert sum(p.numel() for p in bare.parameters()) == 11_172_170 - 1024
    names = [name for name, _ in bare.named_children()]
    assert names[-4:] == ["blocks", "pool", "flatten", "classifier"]
    limit = 27**-0.5  # PyTorch's own: uniform up to 1 / sqrt(fan-in)
    assert 0.9 * limit < float(bare.stem.weight.detach().abs().max()) <= limit
    for options, choices in (
        ({"end": "relu"}, "'norm' or 'none'"),
        ({"start": "zeros"}, "'he' or 'uniform'"),
    ):
        with pytest.raises(
            ValueError, match=f"of model 'preact_resnet18': .* should be {choices}"
        ):
            build("preact_resnet18", options=options, **settings)
