"""CIFAR ResNets with Fixup initialization (Zhang et al., 2019), as in galloway2019, C."""

from torch import Tensor, nn

from advnorm.models import shapes
from advnorm.models.checkpointing import Blocks
from advnorm.models.cifar_resnet import DEPTHS, plan
from advnorm.models.fixup import Bias, FixupBlock, Scale, fixup_init, normalizes
from advnorm.models.layers import assemble, conv3x3, shortcut_a
from advnorm.models.registry import MODELS, variant
from advnorm.norms import Norm


class FixupBasicBlock(FixupBlock):
    r""":math:`\mathrm{ReLU}(x + s F(x) + b)` with scalars instead of norms, shortcut A."""

    def __init__(self, channels: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.bias1 = Bias()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.bias2 = Bias()
        self.relu1 = nn.ReLU()
        self.bias3 = Bias()
        self.conv2 = conv3x3(width, width)
        self.scale = Scale()
        self.bias4 = Bias()
        self.shortcut = shortcut_a(channels, width, stride=stride)
        self.relu2 = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        branch = self.relu1(self.bias2(self.conv1(self.bias1(input))))
        branch = self.bias4(self.scale(self.conv2(self.bias3(branch))))
        output: Tensor = self.relu2(self.shortcut(input) + branch)
        return output


def fixup_resnet(
    depth: int,
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 16,
    recompute: bool = False,
) -> nn.Module:
    """Build the CIFAR ResNet of one of the depths with Fixup in place of norms."""
    name = f"fixup_resnet{depth}"
    if normalizes(norm):
        raise ValueError(
            f"{name} has no normalization layers: choose the norm 'none', or resnet{depth}"
        )
    channels, _, _ = shapes.image(shape, model=name)
    shapes.positive("width", width, model=name)
    blocks = [
        FixupBasicBlock(inputs, outputs, stride=stride)
        for inputs, outputs, stride in plan(depth, width)
    ]
    layers = {
        "stem": conv3x3(channels, width),
        "bias1": Bias(),
        "relu": nn.ReLU(),
        "blocks": Blocks(*blocks, recompute=recompute),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "bias2": Bias(),
        "classifier": nn.Linear(4 * width, classes),
    }
    model = assemble(standardize, layers)
    fixup_init(model)
    return model


for _depth in DEPTHS:
    _summary = f"ResNet-{_depth} for CIFAR with Fixup initialization, no norms."
    MODELS.register(f"fixup_resnet{_depth}")(variant(fixup_resnet, _depth, _summary))
