"""The residual networks of He et al. (2016), section 4.2, for CIFAR."""

from pydantic import PositiveInt
from torch import nn

from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import conv3x3, he_init, pooled_classifier
from advnorm.models.registry import MODELS, BuildContext, variant
from advnorm.models.residual import BasicBlock, BlockShape, block_shapes, pad_shortcut

DEPTHS = (20, 32, 44, 56, 110)


def cifar_block_shapes(depth: int, width: int) -> list[BlockShape]:
    """Return the shape of each block: depth = 6n + 2, three stages of n."""
    widths = (width, 2 * width, 4 * width)
    return block_shapes(width, widths=widths, counts=[(depth - 2) // 6] * 3)


def cifar_resnet(
    depth: int, context: BuildContext, *, width: PositiveInt = 16, recompute: bool = False
) -> nn.Module:
    """Build the CIFAR ResNet of one of the depths.

    Convolutions have no bias; He-normal (fan-out) initialization.
    """
    channels, _, _ = context.image_shape()
    norm = context.norm
    blocks = [
        BasicBlock(inputs, outputs, stride=stride, norm=norm, shortcut=pad_shortcut)
        for inputs, outputs, stride in cifar_block_shapes(depth, width)
    ]
    layers = {
        "stem": conv3x3(channels, width),
        "norm": norm(width),
        "relu": nn.ReLU(),
        "blocks": Blocks(*blocks, recompute=recompute),
        **pooled_classifier(4 * width, context.classes),
    }
    model = context.assemble(layers)
    he_init(model)
    return model


for _depth in DEPTHS:
    _summary = f"ResNet-{_depth} for CIFAR (He et al., 2016), shortcut A."
    MODELS.register(f"resnet{_depth}")(variant(cifar_resnet, _depth, summary=_summary))
