"""Published numbers of parameters, on the meta device."""

import pytest
import torch

from advnorm.models import build
from advnorm.models.imagenet_resnet import STAGES
from advnorm.norms import NORMS

CIFAR, IMAGENET = ((3, 32, 32), 10), ((3, 224, 224), 1000)

# With batch norm, where the published count is.
WITH_BATCH_NORM = {
    "vgg8": (CIFAR, 3_918_858),
    "vgg11": (CIFAR, 9_231_114),
    "vgg13": (CIFAR, 9_416_010),
    "vgg16": (CIFAR, 14_728_266),
    "vgg19": (CIFAR, 20_040_522),
    "preact_resnet18": (CIFAR, 11_172_170),
    "resnet20": (CIFAR, 269_722),
    "resnet32": (CIFAR, 464_154),
    "resnet44": (CIFAR, 658_586),
    "resnet56": (CIFAR, 853_018),
    "resnet110": (CIFAR, 1_727_962),
    "wide_resnet28_10": (CIFAR, 36_479_194),
    "wide_resnet40_2": (CIFAR, 2_243_546),
    "resnet18": (IMAGENET, 11_689_512),
    "resnet34": (IMAGENET, 21_797_672),
    "resnet50": (IMAGENET, 25_557_032),
    "resnet101": (IMAGENET, 44_549_160),
    "resnet152": (IMAGENET, 60_192_808),
    "resnet200": (IMAGENET, 64_673_832),
}
WITHOUT_NORM = {
    # 32*1*9+32 + 64*32*9+64 + 7*7*64*200+200 + 200*10+10
    "lenet5": (((1, 28, 28), 10), 648_226),
    # 32*64+32 + 64*32*36+64 + 64*64*25+64 + 256*10+10: the table's 180.9k
    "cnn_cleverhans": (((1, 32, 32), 10), 180_906),
    # sridhar2021, Table 4: 471K, 1.2M, 17M
    "cnn_small": (CIFAR, 470_918),
    "cnn_medium": (CIFAR, 1_188_906),
    "cnn_large": (CIFAR, 17_190_602),
    "mlp": (((1, 28, 28), 10), 785_000 + 1_001_000 + 10_010),
    "linear": (((2,), 2), 6),
}


def on_meta(name: str, norm: str, problem: tuple[tuple[int, ...], int], **options):
    shape, classes = problem
    with torch.device("meta"):
        return build(
            name, shape=shape, classes=classes, norm=NORMS[norm](), options=options
        )


def count(name: str, norm: str, problem: tuple[tuple[int, ...], int], **options) -> int:
    model = on_meta(name, norm, problem, **options)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", WITH_BATCH_NORM)
def test_count_with_batch_norm_is_the_published_one(name):
    problem, published = WITH_BATCH_NORM[name]
    assert count(name, "batch", problem) == published


@pytest.mark.parametrize("name", WITHOUT_NORM)
def test_count_without_norm_is_the_published_one(name):
    problem, published = WITHOUT_NORM[name]
    assert count(name, "none", problem) == published


@pytest.mark.parametrize("depth", [50, 101, 152, 200, 338, 518, 638])
def test_depth_of_a_bottleneck_network_counts_its_layers(depth):
    assert 2 + 3 * sum(STAGES[depth]) == depth


@pytest.mark.parametrize("depth", [338, 518, 638])
def test_each_added_block_of_the_third_stage_costs_the_same(depth):
    # a bottleneck 1024 -> 256 -> 256 -> 1024 and its norms
    block = 1024 * 256 + 256 * 256 * 9 + 256 * 1024 + 2 * (256 + 256 + 1024)
    added = STAGES[depth][2] - STAGES[200][2]
    assert count(f"resnet{depth}", "batch", IMAGENET) == 64_673_832 + added * block


@pytest.mark.parametrize("depth", [20, 110])
def test_fixup_trades_norms_for_five_scalars_a_block_and_two_more(depth):
    blocks = (depth - 2) // 2
    plain = count(f"resnet{depth}", "none", CIFAR)
    assert count(f"fixup_resnet{depth}", "none", CIFAR) == plain + 5 * blocks + 2


def test_a_fixup_wide_resnet_has_any_size():
    parameters = count("fixup_wide_resnet", "none", CIFAR, depth=40, widen=2)
    assert parameters == count("fixup_wide_resnet40_2", "none", CIFAR)


def test_final_norm_is_the_only_norm_of_a_fixup_network():
    model = on_meta("fixup_wide_resnet40_2", "batch", CIFAR, final_norm=True)
    norms = [
        m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
    ]
    assert [norm.num_features for norm in norms] == [128]
    assert norms[0] is model.norm
