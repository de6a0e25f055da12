"""The residual networks of He et al. (2016), section 4.2, for CIFAR."""

from torch import Tensor, nn

from advnorm.models import shapes
from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import assemble, classifier, conv3x3, he_init, shortcut_a
from advnorm.models.registry import MODELS, variant
from advnorm.norms import Norm

DEPTHS = (20, 32, 44, 56, 110)


class BasicBlockA(nn.Module):
    r""":math:`\mathrm{ReLU}(x + F(x))`: conv-norm-ReLU-conv-norm, shortcut A."""

    def __init__(self, channels: int, width: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.norm1 = norm(width)
        self.relu1 = nn.ReLU()
        self.conv2 = conv3x3(width, width)
        self.norm2 = norm(width)
        self.shortcut = shortcut_a(channels, width, stride=stride)
        self.relu2 = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        branch = self.relu1(self.norm1(self.conv1(input)))
        branch = self.norm2(self.conv2(branch))
        output: Tensor = self.relu2(self.shortcut(input) + branch)
        return output


def plan(depth: int, width: int) -> list[tuple[int, int, int]]:
    """Return (channels, width, stride) of each block: depth = 6n + 2, three stages of n.

    >>> plan(8, 16)
    [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
    """
    blocks: list[tuple[int, int, int]] = []
    channels = width
    for stage in range(3):
        for index in range((depth - 2) // 6):
            outputs = width << stage
            blocks.append((channels, outputs, 2 if stage and not index else 1))
            channels = outputs
    return blocks


def cifar_resnet(
    depth: int,
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 16,
    recompute: bool = False,
) -> nn.Module:
    """Build the CIFAR ResNet of one of the depths.

    Convolutions have no bias; He-normal (fan-out) initialization.
    """
    channels, _, _ = shapes.image(shape, model=f"resnet{depth}")
    shapes.positive("width", width, model=f"resnet{depth}")
    blocks = [
        BasicBlockA(inputs, outputs, stride=stride, norm=norm)
        for inputs, outputs, stride in plan(depth, width)
    ]
    layers = {
        "stem": conv3x3(channels, width),
        "norm": norm(width),
        "relu": nn.ReLU(),
        "blocks": Blocks(*blocks, recompute=recompute),
        **classifier(4 * width, classes),
    }
    model = assemble(standardize, layers)
    he_init(model)
    return model


for _depth in DEPTHS:
    _summary = f"ResNet-{_depth} for CIFAR (He et al., 2016), shortcut A."
    MODELS.register(f"resnet{_depth}")(variant(cifar_resnet, _depth, _summary))
