"""Residual networks for ImageNet (He et al., 2016), to the depths of xie2020."""

from typing import Literal

from pydantic import PositiveInt
from torch import nn

from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import he_init, pooled_classifier
from advnorm.models.registry import MODELS, BuildContext, variant
from advnorm.models.residual import BasicBlock, Bottleneck, block_shapes

# depth: blocks in each of the four stages. ResNet-200 is of He et al. (Identity Mappings).
# xie2020 does not print the stages of its deeper networks: ours lengthen the third one, as
# He et al. did from 50 to 101 layers; depth = 2 + 3 * blocks holds them to these sums.
STAGES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    338: (3, 24, 82, 3),
    518: (3, 24, 142, 3),
    638: (3, 24, 182, 3),
}


def imagenet_resnet(
    depth: int,
    context: BuildContext,
    *,
    width: PositiveInt = 64,
    recompute: bool = False,
    start: Literal["he", "goyal"] = "he",
) -> nn.Module:
    r"""Build the ImageNet ResNet of one of the depths, bottlenecks from 50 layers on.

    Convolutions have no bias; He-normal (fan-out) initialization. With ``start=goyal``, as
    large batches need it (Goyal et al., 2017, xie2020's pipeline), the last :math:`\gamma`
    of each block is 0, so that it begins as its shortcut, and the classifier's weights have
    a standard deviation of 0.01, its biases are 0.
    """
    channels, _, _ = context.image_shape()
    block: type[Bottleneck | BasicBlock] = Bottleneck if depth >= 50 else BasicBlock
    widths = [width << stage for stage in range(4)]
    shapes = block_shapes(
        width, widths=widths, counts=STAGES[depth], expansion=block.expansion
    )
    blocks = [block(c, w, stride=stride, norm=context.norm) for c, w, stride in shapes]
    layers = {
        "stem": nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False),
        "norm": context.norm(width),
        "relu": nn.ReLU(),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
        "blocks": Blocks(*blocks, recompute=recompute),
        **pooled_classifier(block.expansion * widths[-1], context.classes),
    }
    model = context.assemble(layers)
    he_init(model)
    if start == "goyal":
        _goyal_init(model)
    return model


def _goyal_init(model: nn.Module) -> None:
    """Have each block begin as its shortcut, and the classifier with small weights."""
    for layer in model.modules():
        if isinstance(layer, Bottleneck | BasicBlock):
            last = layer.norm3 if isinstance(layer, Bottleneck) else layer.norm2
            for name, parameter in last.named_parameters():
                if name.rpartition(".")[2] == "weight":
                    nn.init.zeros_(parameter)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)


for _depth in STAGES:
    _summary = f"ResNet-{_depth} for ImageNet (He et al., 2016; xie2020)."
    MODELS.register(f"resnet{_depth}")(variant(imagenet_resnet, _depth, summary=_summary))
