"""The CNNs of sridhar2021, Table 4 (after Gowal et al.) and of galloway2019, Table 15."""

from dataclasses import dataclass, replace
from math import prod

from pydantic import PositiveInt
from torch import nn

from advnorm.models.layers import conv_output_size
from advnorm.models.registry import MODELS, BuildContext


@dataclass(frozen=True)
class CNNArchitecture:
    """Convolutions (maps, kernel, stride), then hidden layers."""

    convolutions: tuple[tuple[int, int, int], ...]
    hidden: tuple[int, ...]
    padding: int

    def with_width(self, width: int) -> "CNNArchitecture":
        """Give the first convolution ``width`` maps, and scale all layers in proportion."""
        first = self.convolutions[0][0]

        def scaled(size: int) -> int:
            return max(1, size * width // first)

        convolutions = tuple((scaled(m), kernel, by) for m, kernel, by in self.convolutions)
        hidden = tuple(map(scaled, self.hidden))
        return replace(self, convolutions=convolutions, hidden=hidden)

    def output_size(self, size: int) -> int:
        """Return one side of the last feature map; 0 where the input is too small."""
        for _, kernel, stride in self.convolutions:
            size = conv_output_size(size, kernel, stride=stride, padding=self.padding)
            if size < 1:
                return 0
        return size

    @property
    def min_size(self) -> int:
        """Return the smallest side of an image that leaves a feature map."""
        return next(size for size in range(1, 100) if self.output_size(size))


SMALL = CNNArchitecture(((16, 4, 2), (32, 4, 1)), (100,), padding=0)
MEDIUM = CNNArchitecture(
    ((32, 3, 1), (32, 4, 2), (64, 3, 1), (64, 4, 2)), (512, 512), padding=0
)
LARGE = CNNArchitecture(
    ((64, 3, 1), (64, 3, 1), (128, 3, 2), (128, 3, 1), (128, 3, 1)), (512,), padding=1
)


def plain_cnn(
    architecture: CNNArchitecture, context: BuildContext, *, width: int
) -> nn.Module:
    """Build an architecture: norm and ReLU follow every convolution and hidden layer.

    All layers have biases, also before a norm. PyTorch's default initialization.
    ``width`` is the number of maps of the first convolution.
    """
    cnn = architecture.with_width(width)
    channels, *sides = context.image_shape(min_size=cnn.min_size)
    convolutions: list[nn.Module] = []
    for maps, kernel, stride in cnn.convolutions:
        conv = nn.Conv2d(channels, maps, kernel, stride=stride, padding=cnn.padding)
        convolutions += [conv, context.norm(maps), nn.ReLU()]
        channels = maps
    features = channels * prod(map(cnn.output_size, sides))
    hidden: list[nn.Module] = []
    for size in cnn.hidden:
        hidden += [nn.Linear(features, size), context.norm(size), nn.ReLU()]
        features = size
    layers = {
        "convolutions": nn.Sequential(*convolutions),
        "flatten": nn.Flatten(),
        "hidden": nn.Sequential(*hidden),
        "classifier": nn.Linear(features, context.classes),
    }
    return context.assemble(layers)


@MODELS.register("cnn_small")
def cnn_small(context: BuildContext, *, width: PositiveInt = 16) -> nn.Module:
    """Small CNN of sridhar2021, Table 4: 470,918 parameters (CIFAR-10, no norm)."""
    return plain_cnn(SMALL, context, width=width)


@MODELS.register("cnn_medium")
def cnn_medium(context: BuildContext, *, width: PositiveInt = 32) -> nn.Module:
    """Medium CNN of sridhar2021, Table 4: 1,188,906 parameters (CIFAR-10, no norm)."""
    return plain_cnn(MEDIUM, context, width=width)


@MODELS.register("cnn_large")
def cnn_large(context: BuildContext, *, width: PositiveInt = 64) -> nn.Module:
    """Large CNN of sridhar2021, Table 4: 17,190,602 parameters (CIFAR-10, no norm)."""
    return plain_cnn(LARGE, context, width=width)


@MODELS.register("cnn_cleverhans")
def cnn_cleverhans(context: BuildContext) -> nn.Module:
    """CNN of galloway2019, Table 15: convolutions 8x8, 6x6 (both normalized) and 5x5.

    Adapted there from the CleverHans library. The first convolution has padding 3 ("same"),
    the others none: 32x32 images then give the 256 features of the table. All layers have
    biases: 180,906 parameters, its 180.9k (without biases there would be 180.7k). PyTorch's
    default initialization.
    """
    channels, *sides = context.image_shape(min_size=28)
    height, width = (_cleverhans_output_size(side) for side in sides)
    layers = {
        "conv1": nn.Conv2d(channels, 32, 8, stride=2, padding=3),
        "norm1": context.norm(32),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(32, 64, 6, stride=2),
        "norm2": context.norm(64),
        "relu2": nn.ReLU(),
        "conv3": nn.Conv2d(64, 64, 5),
        "relu3": nn.ReLU(),
        "flatten": nn.Flatten(),
        "classifier": nn.Linear(64 * height * width, context.classes),
    }
    return context.assemble(layers)


def _cleverhans_output_size(size: int) -> int:
    """Return one side of the last feature map."""
    first = conv_output_size(size, 8, stride=2, padding=3)
    return conv_output_size(conv_output_size(first, 6, stride=2), 5)
