"""What the families share: convolutions, the end of a network, initialization."""

from collections import OrderedDict
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn


def assemble(
    standardize: nn.Module | None, layers: Mapping[str, nn.Module]
) -> nn.Sequential:
    """Chain the layers of a network, standardization first."""
    first = nn.Identity() if standardize is None else standardize
    return nn.Sequential(OrderedDict(standardize=first, **layers))


def conv3x3(channels: int, width: int, *, stride: int = 1) -> nn.Conv2d:
    """Return a 3x3 convolution with padding 1 and no bias."""
    return nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)


def conv1x1(channels: int, width: int, *, stride: int = 1) -> nn.Conv2d:
    """Return a 1x1 convolution with no bias."""
    return nn.Conv2d(channels, width, 1, stride=stride, bias=False)


def classifier(features: int, classes: int) -> dict[str, nn.Module]:
    """Return global average pooling and a linear layer."""
    return {
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "classifier": nn.Linear(features, classes),
    }


def he_init(model: nn.Module) -> None:
    r"""Draw the weights of convolutions from :math:`N(0, 2 / \text{fan-out})`.

    He et al. (2015); biases of convolutions become zero, linear layers stay as they are.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


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


def shortcut_a(channels: int, width: int, *, stride: int) -> nn.Module:
    """Return the identity where shapes agree, else :class:`PadShortcut`."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return PadShortcut(channels, width, stride=stride)
