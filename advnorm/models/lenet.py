"""The LeNet-5 variant of the AdverTorch library (Ding et al., 2019)."""

from torch import nn

from advnorm.models.registry import MODELS, BuildContext


@MODELS.register("lenet5")
def lenet5(context: BuildContext) -> nn.Module:
    """LeNet-5 as in AdverTorch: two convolutions (normalized), two linear layers.

    3x3 convolutions to 32 and 64 maps with padding 1, each followed by norm (galloway2019,
    appendix J.1), 2x2 max pooling and ReLU (they commute; this way there is less to
    rectify); a hidden layer of 200. All layers have biases, also before a norm: 648,226
    parameters for MNIST without norm. PyTorch's default initialization.
    """
    channels, height, width = context.image_shape(min_size=4)
    layers = {
        "conv1": nn.Conv2d(channels, 32, 3, padding=1),
        "norm1": context.norm(32),
        "pool1": nn.MaxPool2d(2),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(32, 64, 3, padding=1),
        "norm2": context.norm(64),
        "pool2": nn.MaxPool2d(2),
        "relu2": nn.ReLU(),
        "flatten": nn.Flatten(),
        "hidden": nn.Linear(64 * (height // 4) * (width // 4), 200),
        "relu3": nn.ReLU(),
        "classifier": nn.Linear(200, context.classes),
    }
    return context.assemble(layers)
