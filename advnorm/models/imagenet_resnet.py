"""Residual networks for ImageNet (He et al., 2016), to the depths of xie2020."""

from torch import Tensor, nn

from advnorm.models import shapes
from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import assemble, classifier, conv1x1, conv3x3, he_init
from advnorm.models.registry import MODELS, variant
from advnorm.norms import Norm

# depth: blocks in each of the four stages. ResNet-200 is of He et al. (Identity Mappings).
# xie2020 does not print the plans of its deeper networks: ours lengthen the third stage, as
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


class BasicBlock(nn.Module):
    r""":math:`\mathrm{ReLU}(W x + F(x))`, F being two 3x3 convolutions with norms."""

    expansion = 1

    def __init__(self, channels: int, width: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.norm1 = norm(width)
        self.relu1 = nn.ReLU()
        self.conv2 = conv3x3(width, width)
        self.norm2 = norm(width)
        self.shortcut = projection(channels, width, stride=stride, norm=norm)
        self.relu2 = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        branch = self.relu1(self.norm1(self.conv1(input)))
        branch = self.norm2(self.conv2(branch))
        output: Tensor = self.relu2(self.shortcut(input) + branch)
        return output


class Bottleneck(nn.Module):
    r""":math:`\mathrm{ReLU}(W x + F(x))`, F being 1x1, 3x3 and 1x1 convolutions with norms.

    The stride is that of the 3x3 convolution.
    """

    expansion = 4

    def __init__(self, channels: int, width: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = conv1x1(channels, width)
        self.norm1 = norm(width)
        self.relu1 = nn.ReLU()
        self.conv2 = conv3x3(width, width, stride=stride)
        self.norm2 = norm(width)
        self.relu2 = nn.ReLU()
        self.conv3 = conv1x1(width, 4 * width)
        self.norm3 = norm(4 * width)
        self.shortcut = projection(channels, 4 * width, stride=stride, norm=norm)
        self.relu3 = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, 4 * width, height / stride, width / stride)``."""
        branch = self.relu1(self.norm1(self.conv1(input)))
        branch = self.relu2(self.norm2(self.conv2(branch)))
        branch = self.norm3(self.conv3(branch))
        output: Tensor = self.relu3(self.shortcut(input) + branch)
        return output


def projection(channels: int, width: int, *, stride: int, norm: Norm) -> nn.Module:
    """Return shortcut B: the identity, or a 1x1 convolution and norm for a new shape."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(conv1x1(channels, width, stride=stride), norm(width))


def imagenet_resnet(
    depth: int,
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 64,
    recompute: bool = False,
    start: str = "he",
) -> nn.Module:
    r"""Build the ImageNet ResNet of one of the depths, bottlenecks from 50 layers on.

    Convolutions have no bias; He-normal (fan-out) initialization. A ``start`` of ``goyal``
    has beside it what large batches want (Goyal et al., 2017, xie2020's pipeline): the last
    :math:`\gamma` of each block is 0, so that it begins as its shortcut, and the
    classifier's weights are of deviation 0.01, its biases 0.
    """
    if start not in ("he", "goyal"):
        raise ValueError(f"resnet{depth} starts he or goyal, not {start!r}")
    channels, _, _ = shapes.image(shape, model=f"resnet{depth}")
    shapes.positive("width", width, model=f"resnet{depth}")
    block = Bottleneck if depth >= 50 else BasicBlock
    blocks: list[nn.Module] = []
    inputs = width
    for stage, count in enumerate(STAGES[depth]):
        for index in range(count):
            stride = 2 if stage and not index else 1
            blocks.append(block(inputs, width << stage, stride=stride, norm=norm))
            inputs = block.expansion * (width << stage)
    layers = {
        "stem": nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False),
        "norm": norm(width),
        "relu": nn.ReLU(),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
        "blocks": Blocks(*blocks, recompute=recompute),
        **classifier(inputs, classes),
    }
    model = assemble(standardize, layers)
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
    MODELS.register(f"resnet{_depth}")(variant(imagenet_resnet, _depth, _summary))
