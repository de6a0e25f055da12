"""Fixup initialization against its rules."""

import pytest
import torch
from torch import nn

from advnorm.models import MODELS, build
from advnorm.models.fixup import FixupBlock
from advnorm.norms import NORMS

NONE = NORMS["none"]()


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


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("fixup")])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_fixup_refuses_a_norm(name, norm):
    with pytest.raises(ValueError, match=f"{name}.* has no normalization layers: choose"):
        build(name, shape=(3, 32, 32), classes=10, norm=NORMS[norm]())
