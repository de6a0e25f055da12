"""Pre-activation ResNet-18 (He et al., 2016, Identity Mappings) for small images."""

from typing import Literal

from pydantic import PositiveInt
from torch import nn

from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import conv3x3, he_init, pooled_classifier
from advnorm.models.registry import MODELS, BuildContext
from advnorm.models.residual import PreActBlock, block_shapes


@MODELS.register("preact_resnet18")
def preact_resnet18(
    context: BuildContext,
    *,
    width: PositiveInt = 64,
    recompute: bool = False,
    end: Literal["norm", "none"] = "norm",
    start: Literal["he", "uniform"] = "he",
) -> nn.Module:
    """Pre-activation ResNet-18 for small images, with a 3x3 stem.

    Four stages of two blocks, 11.17M parameters for CIFAR-10. As in the paper, a last norm
    and ReLU come before pooling; ``end=none`` leaves them out, as much code does (1,024
    parameters less). Convolutions have no bias. ``start=he`` is He-normal (fan-out)
    initialization, ``start=uniform`` PyTorch's default.
    """
    channels, _, _ = context.image_shape()
    widths = [width << stage for stage in range(4)]
    blocks = [
        PreActBlock(inputs, outputs, stride=stride, norm=context.norm)
        for inputs, outputs, stride in block_shapes(width, widths=widths, counts=[2] * 4)
    ]
    features = widths[-1]
    layers = {
        "stem": conv3x3(channels, width),
        "blocks": Blocks(*blocks, recompute=recompute),
        **({"norm": context.norm(features), "relu": nn.ReLU()} if end == "norm" else {}),
        **pooled_classifier(features, context.classes),
    }
    model = context.assemble(layers)
    if start == "he":
        he_init(model)
    return model
