"""Residual blocks, their shortcuts, and how blocks are arranged in stages."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from advnorm.models.layers import conv1x1, conv3x3
from advnorm.norms import Norm


class BlockShape(NamedTuple):
    """The size of a residual block: input channels, width of its convolutions, stride."""

    channels: int
    width: int
    stride: int


def block_shapes(
    channels: int, *, widths: Sequence[int], counts: Sequence[int], expansion: int = 1
) -> list[BlockShape]:
    """Return the shapes of ``counts`` blocks a stage; later stages begin with stride 2.

    ``channels`` come out of the stem, ``expansion * width`` out of a block.

    >>> [tuple(shape) for shape in block_shapes(16, widths=(16, 32), counts=(1, 2))]
    [(16, 16, 1), (16, 32, 2), (32, 32, 1)]
    """
    shapes = []
    for stage, (width, count) in enumerate(zip(widths, counts, strict=True)):
        for index in range(count):
            shapes.append(BlockShape(channels, width, 2 if stage and not index else 1))
            channels = expansion * width
    return shapes


class PadShortcut(nn.Module):
    """The parameter-free shortcut A of He et al. (2016).

    Keeps every ``stride``-th pixel and appends channels of zeros.
    """

    def __init__(self, channels: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.zeros = width - channels

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        kept = input[:, :, :: self.stride, :: self.stride]
        return F.pad(kept, (0, 0, 0, 0, 0, self.zeros))


def pad_shortcut(
    channels: int, width: int, *, stride: int, norm: Norm | None = None
) -> nn.Module:
    """Return shortcut A: the identity where shapes agree, else :class:`PadShortcut`."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return PadShortcut(channels, width, stride=stride)


def projection_shortcut(channels: int, width: int, *, stride: int, norm: Norm) -> nn.Module:
    """Return shortcut B: the identity, or a 1x1 convolution and norm for a new shape."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(conv1x1(channels, width, stride=stride), norm(width))


def conv_shortcut(channels: int, width: int, *, stride: int) -> nn.Conv2d | None:
    """Return a 1x1 convolution where the shape changes, else nothing."""
    if stride == 1 and channels == width:
        return None
    return conv1x1(channels, width, stride=stride)


class BasicBlock(nn.Module):
    r""":math:`\mathrm{ReLU}(S x + F(x))`: F is conv-norm-ReLU-conv-norm, 3x3 each."""

    expansion = 1

    def __init__(
        self,
        channels: int,
        width: int,
        *,
        stride: int,
        norm: Norm,
        shortcut: Callable[..., nn.Module] = projection_shortcut,
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.norm1 = norm(width)
        self.relu1 = nn.ReLU()
        self.conv2 = conv3x3(width, width)
        self.norm2 = norm(width)
        self.shortcut = shortcut(channels, width, stride=stride, norm=norm)
        self.relu2 = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        branch = self.relu1(self.norm1(self.conv1(input)))
        branch = self.norm2(self.conv2(branch))
        output: Tensor = self.relu2(self.shortcut(input) + branch)
        return output


class Bottleneck(nn.Module):
    r""":math:`\mathrm{ReLU}(S x + F(x))`: F is 1x1, 3x3 and 1x1 convolutions with norms.

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
        self.shortcut = projection_shortcut(channels, 4 * width, stride=stride, norm=norm)
        self.relu3 = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, 4 * width, height / stride, width / stride)``."""
        branch = self.relu1(self.norm1(self.conv1(input)))
        branch = self.relu2(self.norm2(self.conv2(branch)))
        branch = self.norm3(self.conv3(branch))
        output: Tensor = self.relu3(self.shortcut(input) + branch)
        return output


class PreActBlock(nn.Module):
    r"""Two 3x3 convolutions, each after norm and ReLU (He et al., Identity Mappings).

    :math:`x + F(a)` with :math:`a = \mathrm{ReLU}(\mathrm{norm}(x))`, or
    :math:`W a + F(a)`, W being a 1x1 convolution, where the shape changes. Wide residual
    networks may have dropout between the convolutions.
    """

    def __init__(
        self, channels: int, width: int, *, stride: int, norm: Norm, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.norm1 = norm(channels)
        self.relu1 = nn.ReLU()
        self.conv1 = conv3x3(channels, width, stride=stride)
        self.norm2 = norm(width)
        self.relu2 = nn.ReLU()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = conv3x3(width, width)
        self.shortcut = conv_shortcut(channels, width, stride=stride)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(batch, width, height / stride, width / stride)``."""
        active = self.relu1(self.norm1(input))
        branch = self.relu2(self.norm2(self.conv1(active)))
        branch = self.conv2(self.dropout(branch))
        skip = input if self.shortcut is None else self.shortcut(active)
        output: Tensor = skip + branch
        return output
