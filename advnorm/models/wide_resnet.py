"""Wide residual networks (Zagoruyko & Komodakis, 2016)."""

from typing import Annotated

from pydantic import Field, PositiveInt
from torch import nn

from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import conv3x3, he_init, pooled_classifier
from advnorm.models.registry import MODELS, BuildContext, variant
from advnorm.models.residual import BlockShape, PreActBlock, block_shapes

Dropout = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
"""A probability below 1."""


def wide_block_shapes(depth: int, widen: int, context: BuildContext) -> list[BlockShape]:
    """Return the shape of each block: depth = 6n + 4, three stages of n."""
    if depth < 10 or depth % 6 != 4:
        raise ValueError(f"{context.name} needs a depth of 10, 16, 22, ..., not {depth}")
    widths = (16 * widen, 32 * widen, 64 * widen)
    return block_shapes(16, widths=widths, counts=[(depth - 4) // 6] * 3)


def wide_resnet(
    depth: int,
    widen: int,
    context: BuildContext,
    *,
    dropout: Dropout = 0.0,
    recompute: bool = False,
) -> nn.Module:
    """Build the wide residual network of a depth and a widening factor.

    Pre-activation blocks, with dropout between their convolutions if it is above 0, and a
    last norm and ReLU. Convolutions have no bias; He-normal (fan-out) initialization, and
    zero for the bias of the classifier.
    """
    channels, _, _ = context.image_shape()
    blocks = [
        PreActBlock(inputs, outputs, stride=stride, norm=context.norm, dropout=dropout)
        for inputs, outputs, stride in wide_block_shapes(depth, widen, context)
    ]
    layers = {
        "stem": conv3x3(channels, 16),
        "blocks": Blocks(*blocks, recompute=recompute),
        "norm": context.norm(64 * widen),
        "relu": nn.ReLU(),
        **pooled_classifier(64 * widen, context.classes),
    }
    model = context.assemble(layers)
    he_init(model)
    nn.init.zeros_(model.get_parameter("classifier.bias"))
    return model


@MODELS.register("wide_resnet")
def any_wide_resnet(
    context: BuildContext,
    *,
    depth: int = 28,
    widen: PositiveInt = 10,
    dropout: Dropout = 0.0,
    recompute: bool = False,
) -> nn.Module:
    """Wide residual network of any depth 6n + 4 and widening factor."""
    return wide_resnet(depth, widen, context, dropout=dropout, recompute=recompute)


for _depth, _widen, _note in (
    (28, 10, "36.5M parameters for CIFAR-10"),
    (40, 2, "2.2M parameters for CIFAR-10 (apart2022)"),
):
    _summary = f"WideResNet-{_depth}-{_widen}: {_note}."
    MODELS.register(f"wide_resnet{_depth}_{_widen}")(
        variant(wide_resnet, _depth, _widen, summary=_summary)
    )
