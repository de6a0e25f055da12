"""What the families share: convolutions, the end of a network, initialization."""

from torch import nn


def conv3x3(channels: int, width: int, *, stride: int = 1) -> nn.Conv2d:
    """Return a 3x3 convolution with padding 1 and no bias."""
    return nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)


def conv1x1(channels: int, width: int, *, stride: int = 1) -> nn.Conv2d:
    """Return a 1x1 convolution with no bias."""
    return nn.Conv2d(channels, width, 1, stride=stride, bias=False)


def conv_output_size(size: int, kernel: int, *, stride: int = 1, padding: int = 0) -> int:
    """Return the size of one side after a convolution or a pooling.

    >>> conv_output_size(32, 4, stride=2)
    15
    """
    return (size + 2 * padding - kernel) // stride + 1


def pooled_classifier(features: int, classes: int) -> dict[str, nn.Module]:
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
