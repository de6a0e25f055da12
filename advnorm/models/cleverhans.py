"""The CNN of galloway2019, Table 15, adapted there from the CleverHans library."""

from torch import nn

from advnorm.models import shapes
from advnorm.models.layers import assemble
from advnorm.models.registry import MODELS
from advnorm.norms import Norm


@MODELS.register("cnn_cleverhans")
def cnn_cleverhans(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
) -> nn.Module:
    """CNN of galloway2019, Table 15: convolutions 8x8+2, 6x6+2 (normalized) and 5x5+1.

    The first convolution has padding 3 ("same"), the others none: 32x32 images then give
    the 256 features of the table. All layers have biases: 180,906 parameters, its 180.9k
    (without biases there would be 180.7k). PyTorch's default initialization.
    """
    channels, *sides = shapes.image(shape, model="cnn_cleverhans", least=28)
    height, width = (_side(side) for side in sides)
    layers = {
        "conv1": nn.Conv2d(channels, 32, 8, stride=2, padding=3),
        "norm1": norm(32),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(32, 64, 6, stride=2),
        "norm2": norm(64),
        "relu2": nn.ReLU(),
        "conv3": nn.Conv2d(64, 64, 5),
        "relu3": nn.ReLU(),
        "flatten": nn.Flatten(),
        "classifier": nn.Linear(64 * height * width, classes),
    }
    return assemble(standardize, layers)


def _side(size: int) -> int:
    """Return one side of the last feature map."""
    first = shapes.after(size, 8, stride=2, padding=3)
    return shapes.after(shapes.after(first, 6, stride=2), 5)
