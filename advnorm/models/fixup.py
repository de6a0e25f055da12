r"""Residual networks without normalization: Fixup initialization (Zhang et al., 2019).

1. The classifier and the last layer of each residual branch start at zero.
2. The other layers start as usual, those inside of branches times :math:`L^{-1/(2m-2)}`,
   for L branches of m layers each.
3. Each branch has a scalar multiplier (one at first), and each convolution, linear layer
   and activation comes after a scalar bias (zero at first).

The paper trains the scalars with a tenth of the learning rate. The CIFAR ResNets are those
of galloway2019, appendix C.
"""

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from advnorm.models.checkpointing import Blocks
from advnorm.models.cifar_resnet import DEPTHS, cifar_block_shapes
from advnorm.models.layers import conv3x3, he_init
from advnorm.models.registry import MODELS, BuildContext, variant
from advnorm.models.residual import conv_shortcut, pad_shortcut
from advnorm.models.wide_resnet import Dropout, wide_block_shapes
from advnorm.norms import Norm


class ScalarBias(nn.Module):
    """Adds one number to all features."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, input: Tensor) -> Tensor:
        """Return the shifted input."""
        return input + self.bias


class ScalarMultiplier(nn.Module):
    """Multiplies all features by one number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, input: Tensor) -> Tensor:
        """Return the scaled input."""
        return input * self.scale


class FixupBlock(nn.Module):
    """A residual block with a branch of two convolutions, ``conv1`` and ``conv2``."""

    conv1: nn.Conv2d
    conv2: nn.Conv2d


class FixupBasicBlock(FixupBlock):
    r""":math:`\mathrm{ReLU}(x + s F(x) + b)` with scalars instead of norms, shortcut A."""

    def __init__(self, channels: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.bias1 = ScalarBias()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.bias2 = ScalarBias()
        self.relu1 = nn.ReLU()
        self.bias3 = ScalarBias()
        self.conv2 = conv3x3(width, width)
        self.scale = ScalarMultiplier()
        self.bias4 = ScalarBias()
        self.shortcut = pad_shortcut(channels, width, stride=stride)
        self.relu2 = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        branch = self.relu1(self.bias2(self.conv1(self.bias1(input))))
        branch = self.bias4(self.scale(self.conv2(self.bias3(branch))))
        output: Tensor = self.relu2(self.shortcut(input) + branch)
        return output


class FixupPreActBlock(FixupBlock):
    r""":math:`x + s F(a)` with scalars instead of norms.

    The activation a is of x; a 1x1 convolution of a replaces x where the shape changes.
    """

    def __init__(
        self, channels: int, width: int, *, stride: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.bias1 = ScalarBias()
        self.relu1 = nn.ReLU()
        self.bias2 = ScalarBias()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.bias3 = ScalarBias()
        self.relu2 = nn.ReLU()
        self.bias4 = ScalarBias()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = conv3x3(width, width)
        self.scale = ScalarMultiplier()
        self.shortcut = conv_shortcut(channels, width, stride=stride)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        active = self.bias2(self.relu1(self.bias1(input)))
        branch = self.bias4(self.relu2(self.bias3(self.conv1(active))))
        branch = self.scale(self.conv2(self.dropout(branch)))
        skip = input if self.shortcut is None else self.shortcut(active)
        output: Tensor = skip + branch
        return output


def fixup_init(model: nn.Module) -> None:
    """Apply rules 1 and 2, with m = 2 and He-normal (fan-out) weights."""
    he_init(model)
    blocks = [module for module in model.modules() if isinstance(module, FixupBlock)]
    with torch.no_grad():
        for block in blocks:
            block.conv1.weight.mul_(len(blocks) ** -0.5)
            block.conv2.weight.zero_()
        model.get_parameter("classifier.weight").zero_()
        model.get_parameter("classifier.bias").zero_()


def fixup_resnet(
    depth: int, context: BuildContext, *, width: PositiveInt = 16, recompute: bool = False
) -> nn.Module:
    """Build the CIFAR ResNet of one of the depths with Fixup in place of norms."""
    if _normalizes(context.norm):
        raise ValueError(
            f"{context.name} has no normalization layers: choose the norm 'none', or "
            f"resnet{depth}"
        )
    channels, _, _ = context.image_shape()
    blocks = [
        FixupBasicBlock(inputs, outputs, stride=stride)
        for inputs, outputs, stride in cifar_block_shapes(depth, width)
    ]
    layers = {
        "stem": conv3x3(channels, width),
        "bias1": ScalarBias(),
        "relu": nn.ReLU(),
        "blocks": Blocks(*blocks, recompute=recompute),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "bias2": ScalarBias(),
        "classifier": nn.Linear(4 * width, context.classes),
    }
    model = context.assemble(layers)
    fixup_init(model)
    return model


for _depth in DEPTHS:
    _summary = f"ResNet-{_depth} for CIFAR with Fixup initialization, no norms."
    MODELS.register(f"fixup_resnet{_depth}")(
        variant(fixup_resnet, _depth, summary=_summary)
    )


def fixup_wide_resnet(
    depth: int,
    widen: int,
    context: BuildContext,
    *,
    dropout: Dropout = 0.0,
    final_norm: bool = False,
    recompute: bool = False,
) -> nn.Module:
    """Build the wide residual network of a depth and a widening factor with Fixup.

    With ``final_norm`` there is one norm, before the last ReLU and the classifier, in place
    of the scalar bias there: the network of galloway2019, appendix E.
    """
    channels, _, _ = context.image_shape()
    _check_final_norm(context, final_norm=final_norm)
    blocks = [
        FixupPreActBlock(inputs, outputs, stride=stride, dropout=dropout)
        for inputs, outputs, stride in wide_block_shapes(depth, widen, context)
    ]
    layers = {
        "stem": conv3x3(channels, 16),
        "blocks": Blocks(*blocks, recompute=recompute),
        "norm": context.norm(64 * widen) if final_norm else ScalarBias(),
        "relu": nn.ReLU(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "bias": ScalarBias(),
        "classifier": nn.Linear(64 * widen, context.classes),
    }
    model = context.assemble(layers)
    fixup_init(model)
    return model


@MODELS.register("fixup_wide_resnet")
def any_fixup_wide_resnet(
    context: BuildContext,
    *,
    depth: int = 28,
    widen: PositiveInt = 10,
    final_norm: bool = False,
    recompute: bool = False,
) -> nn.Module:
    """Wide residual network with Fixup of any depth 6n + 4 and widening factor."""
    return fixup_wide_resnet(
        depth, widen, context, final_norm=final_norm, recompute=recompute
    )


for _depth, _widen in ((28, 10), (40, 2)):
    _summary = f"WideResNet-{_depth}-{_widen} with Fixup initialization."
    MODELS.register(f"fixup_wide_resnet{_depth}_{_widen}")(
        variant(fixup_wide_resnet, _depth, _widen, summary=_summary)
    )


def _normalizes(norm: Norm) -> bool:
    return not isinstance(norm(8), nn.Identity)


def _check_final_norm(context: BuildContext, *, final_norm: bool) -> None:
    """Refuse a norm that would not be used, and a final norm that would be none."""
    if _normalizes(context.norm) and not final_norm:
        raise ValueError(
            f"{context.name} has no normalization layers: choose the norm 'none', or set "
            "final_norm for one before the classifier"
        )
    if final_norm and not _normalizes(context.norm):
        raise ValueError(
            f"final_norm of {context.name} needs a norm: choose one other than 'none'"
        )
