"""Wide residual networks (Zagoruyko & Komodakis, 2016)."""

from torch import nn

from advnorm.models import shapes
from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import assemble, classifier, conv3x3, he_init
from advnorm.models.preact_resnet import PreActBlock
from advnorm.models.registry import MODELS
from advnorm.norms import Norm


def plan(depth: int, widen: int) -> list[tuple[int, int, int]]:
    """Return (channels, width, stride) of each block: depth = 6n + 4, three stages of n.

    >>> plan(10, 2)
    [(16, 32, 1), (32, 64, 2), (64, 128, 2)]
    """
    if depth < 10 or depth % 6 != 4:
        raise ValueError(f"wide_resnet needs a depth of 10, 16, 22, ..., not {depth}")
    shapes.positive("widen", widen, model="wide_resnet")
    blocks: list[tuple[int, int, int]] = []
    channels = 16
    for stage in range(3):
        for index in range((depth - 4) // 6):
            outputs = 16 * widen << stage
            blocks.append((channels, outputs, 2 if stage and not index else 1))
            channels = outputs
    return blocks


@MODELS.register("wide_resnet")
def wide_resnet(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    depth: int = 28,
    widen: int = 10,
    dropout: float = 0.0,
    recompute: bool = False,
) -> nn.Module:
    """Wide residual network of any depth 6n + 4 and widening factor.

    Pre-activation blocks, with dropout between their convolutions if asked for, and a last
    norm and ReLU. Convolutions have no bias; He-normal (fan-out) initialization, and zero
    for the bias of the classifier.
    """
    channels, _, _ = shapes.image(shape, model="wide_resnet")
    check_dropout(dropout)
    blocks = [
        PreActBlock(inputs, outputs, stride=stride, norm=norm, dropout=dropout)
        for inputs, outputs, stride in plan(depth, widen)
    ]
    layers = {
        "stem": conv3x3(channels, 16),
        "blocks": Blocks(*blocks, recompute=recompute),
        "norm": norm(64 * widen),
        "relu": nn.ReLU(),
        **classifier(64 * widen, classes),
    }
    model = assemble(standardize, layers)
    he_init(model)
    nn.init.zeros_(model.get_parameter("classifier.bias"))
    return model


def check_dropout(dropout: float) -> None:
    """Refuse a probability outside of [0, 1)."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is a probability in [0, 1), not {dropout}")


@MODELS.register("wide_resnet28_10")
def wide_resnet28_10(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    dropout: float = 0.0,
    recompute: bool = False,
) -> nn.Module:
    """WideResNet-28-10: 36.5M parameters for CIFAR-10."""
    return wide_resnet(
        shape=shape,
        classes=classes,
        norm=norm,
        standardize=standardize,
        depth=28,
        widen=10,
        dropout=dropout,
        recompute=recompute,
    )


@MODELS.register("wide_resnet40_2")
def wide_resnet40_2(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    dropout: float = 0.0,
    recompute: bool = False,
) -> nn.Module:
    """WideResNet-40-2: 2.2M parameters for CIFAR-10 (apart2022)."""
    return wide_resnet(
        shape=shape,
        classes=classes,
        norm=norm,
        standardize=standardize,
        depth=40,
        widen=2,
        dropout=dropout,
        recompute=recompute,
    )
