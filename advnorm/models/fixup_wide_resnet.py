"""Wide residual networks with Fixup initialization (Zhang et al., 2019)."""

from torch import Tensor, nn

from advnorm.models import shapes
from advnorm.models.checkpointing import Blocks
from advnorm.models.fixup import Bias, FixupBlock, Scale, fixup_init, normalizes
from advnorm.models.layers import assemble, conv1x1, conv3x3
from advnorm.models.registry import MODELS, variant
from advnorm.models.wide_resnet import check_dropout, plan
from advnorm.norms import Norm


class FixupPreActBlock(FixupBlock):
    r""":math:`x + s F(a)` with scalars instead of norms.

    The activation a is of x; a 1x1 convolution of a stands for x where the shape changes.
    """

    def __init__(
        self, channels: int, width: int, *, stride: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.bias1 = Bias()
        self.relu1 = nn.ReLU()
        self.bias2 = Bias()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.bias3 = Bias()
        self.relu2 = nn.ReLU()
        self.bias4 = Bias()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = conv3x3(width, width)
        self.scale = Scale()
        self.shortcut = (
            conv1x1(channels, width, stride=stride)
            if stride != 1 or channels != width
            else None
        )

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        active = self.bias2(self.relu1(self.bias1(input)))
        branch = self.bias4(self.relu2(self.bias3(self.conv1(active))))
        branch = self.scale(self.conv2(self.dropout(branch)))
        skip = input if self.shortcut is None else self.shortcut(active)
        output: Tensor = skip + branch
        return output


def fixup_wide_resnet(
    size: tuple[int, int],
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    dropout: float = 0.0,
    final_norm: bool = False,
    recompute: bool = False,
) -> nn.Module:
    """Build the wide residual network of a (depth, widening factor) with Fixup.

    With ``final_norm`` there is one norm, before the last ReLU and the classifier, in place
    of the scalar bias there: the network of galloway2019, appendix E.
    """
    depth, widen = size
    name = f"fixup_wide_resnet{depth}_{widen}"
    channels, _, _ = shapes.image(shape, model=name)
    check_dropout(dropout)
    _check_norm(name, norm, final_norm=final_norm)
    blocks = [
        FixupPreActBlock(inputs, outputs, stride=stride, dropout=dropout)
        for inputs, outputs, stride in plan(depth, widen)
    ]
    layers = {
        "stem": conv3x3(channels, 16),
        "blocks": Blocks(*blocks, recompute=recompute),
        "norm": norm(64 * widen) if final_norm else Bias(),
        "relu": nn.ReLU(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "bias": Bias(),
        "classifier": nn.Linear(64 * widen, classes),
    }
    model = assemble(standardize, layers)
    fixup_init(model)
    return model


def _check_norm(name: str, norm: Norm, *, final_norm: bool) -> None:
    """Refuse a norm that would go unused, and a final norm that would be none."""
    if normalizes(norm) and not final_norm:
        raise ValueError(
            f"{name} has no normalization layers: choose the norm 'none', or set "
            "final_norm for one before the classifier"
        )
    if final_norm and not normalizes(norm):
        raise ValueError(f"final_norm of {name} needs a norm: choose one other than 'none'")


@MODELS.register("fixup_wide_resnet")
def any_fixup_wide_resnet(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    depth: int = 28,
    widen: int = 10,
    final_norm: bool = False,
    recompute: bool = False,
) -> nn.Module:
    """Wide residual network with Fixup of any depth 6n + 4 and widening factor."""
    return fixup_wide_resnet(
        (depth, widen),
        shape=shape,
        classes=classes,
        norm=norm,
        standardize=standardize,
        final_norm=final_norm,
        recompute=recompute,
    )


for _size in ((28, 10), (40, 2)):
    _summary = f"WideResNet-{_size[0]}-{_size[1]} with Fixup initialization."
    _name = f"fixup_wide_resnet{_size[0]}_{_size[1]}"
    MODELS.register(_name)(variant(fixup_wide_resnet, _size, _summary))
