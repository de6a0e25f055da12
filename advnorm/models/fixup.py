r"""Fixup initialization (Zhang et al., 2019): residual networks without normalization.

1. The classifier and the last layer of each residual branch start at zero.
2. The other layers start as usual, those inside of branches times :math:`L^{-1/(2m-2)}`,
   for L branches of m layers each.
3. Each branch has a scalar multiplier (one at first), and each convolution, linear layer
   and activation comes after a scalar bias (zero at first).

The paper trains the scalars with a tenth of the learning rate.
"""

import torch
from torch import Tensor, nn

from advnorm.models.layers import he_init
from advnorm.norms import Norm


class Bias(nn.Module):
    """Adds one number to all features."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, input: Tensor) -> Tensor:
        """Return the shifted input."""
        return input + self.bias


class Scale(nn.Module):
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


def fixup_init(model: nn.Module) -> None:
    """Initialize as the rules 1 and 2 say, with m = 2 and He-normal (fan-out) weights."""
    he_init(model)
    blocks = [module for module in model.modules() if isinstance(module, FixupBlock)]
    with torch.no_grad():
        for block in blocks:
            block.conv1.weight.mul_(len(blocks) ** -0.5)
            block.conv2.weight.zero_()
        model.get_parameter("classifier.weight").zero_()
        model.get_parameter("classifier.bias").zero_()


def normalizes(norm: Norm) -> bool:
    """Tell whether a norm is other than ``none``."""
    return not isinstance(norm(8), nn.Identity)
