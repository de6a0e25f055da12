"""VGG (Simonyan & Zisserman, 2015) with one linear layer, as is usual for CIFAR."""

from pydantic import PositiveInt
from torch import nn

from advnorm.models.layers import he_init, pooled_classifier
from advnorm.models.registry import MODELS, BuildContext, variant

# depth: convolutions in each of the five stages
STAGES = {
    8: (1, 1, 1, 1, 1),
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
_WIDTHS = (1, 2, 4, 8, 8)


def vgg(depth: int, context: BuildContext, *, width: PositiveInt = 64) -> nn.Module:
    """Build VGG of one of the depths: five stages of 3x3 convolution-norm-ReLU.

    A stage ends in 2x2 max pooling. The depth counts three linear layers, as in the
    original networks, though these have one on the averaged features; so VGG-8, whose
    layers galloway2019 does not print, has one convolution a stage. Convolutions have
    biases, also before a norm. He-normal (fan-out) initialization: galloway2019 names
    He et al. (2015), and zero for those biases.
    """
    channels, _, _ = context.image_shape(min_size=32)
    stages: list[nn.Module] = []
    for count, factor in zip(STAGES[depth], _WIDTHS, strict=True):
        for _ in range(count):
            conv = nn.Conv2d(channels, factor * width, 3, padding=1)
            stages += [conv, context.norm(factor * width), nn.ReLU()]
            channels = factor * width
        stages.append(nn.MaxPool2d(2))
    end = pooled_classifier(channels, context.classes)
    model = context.assemble({"features": nn.Sequential(*stages), **end})
    he_init(model)
    return model


for _depth in STAGES:
    _summary = f"VGG-{_depth}, for images of 32x32 and more."
    MODELS.register(f"vgg{_depth}")(variant(vgg, _depth, summary=_summary))
