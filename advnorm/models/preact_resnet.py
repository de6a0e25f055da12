"""Pre-activation ResNet-18 (He et al., 2016, Identity Mappings) for small images."""

from torch import Tensor, nn

from advnorm.models import shapes
from advnorm.models.checkpointing import Blocks
from advnorm.models.layers import assemble, classifier, conv1x1, conv3x3, he_init
from advnorm.models.registry import MODELS
from advnorm.norms import Norm


class PreActBlock(nn.Module):
    r"""Two 3x3 convolutions, each after norm and ReLU.

    :math:`x + F(a)` with :math:`a = \mathrm{ReLU}(\mathrm{norm}(x))`, or
    :math:`W a + F(a)`, W being a 1x1 convolution, where the shape changes. Serves wide
    residual networks too, which may drop out between the convolutions.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        *,
        stride: int,
        norm: Norm,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = norm(channels)
        self.relu1 = nn.ReLU()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.norm2 = norm(width)
        self.relu2 = nn.ReLU()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = conv3x3(width, width)
        self.shortcut = (
            conv1x1(channels, width, stride=stride)
            if stride != 1 or channels != width
            else None
        )

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        active = self.relu1(self.norm1(input))
        branch = self.relu2(self.norm2(self.conv1(active)))
        branch = self.conv2(self.dropout(branch))
        skip = input if self.shortcut is None else self.shortcut(active)
        output: Tensor = skip + branch
        return output


@MODELS.register("preact_resnet18")
def preact_resnet18(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 64,
    recompute: bool = False,
    end: str = "norm",
    start: str = "he",
) -> nn.Module:
    """Pre-activation ResNet-18 for small images, with a 3x3 stem.

    Four stages of two blocks, 11.17M parameters for CIFAR-10. As in the paper, a last norm
    and ReLU come before pooling; with an ``end`` of ``none`` they are left out, as in much
    code (1,024 parameters less). Convolutions have no bias. A ``start`` of ``he`` is
    He-normal (fan-out), one of ``uniform`` is PyTorch's own.
    """
    if end not in ("norm", "none") or start not in ("he", "uniform"):
        raise ValueError(
            "preact_resnet18 ends in norm or none and starts he or uniform, not "
            f"{end!r} and {start!r}"
        )
    channels, _, _ = shapes.image(shape, model="preact_resnet18")
    shapes.positive("width", width, model="preact_resnet18")
    blocks: list[nn.Module] = []
    inputs = width
    for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        blocks.append(PreActBlock(inputs, outputs, stride=stride, norm=norm))
        blocks.append(PreActBlock(outputs, outputs, stride=1, norm=norm))
        inputs = outputs
    layers = {
        "stem": conv3x3(channels, width),
        "blocks": Blocks(*blocks, recompute=recompute),
        **({"norm": norm(inputs), "relu": nn.ReLU()} if end == "norm" else {}),
        **classifier(inputs, classes),
    }
    model = assemble(standardize, layers)
    if start == "he":
        he_init(model)
    return model
