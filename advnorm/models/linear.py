"""Linear classifiers and fully connected networks, for inputs of any shape."""

from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor, nn

from advnorm.models.registry import MODELS, BuildContext
from advnorm.models.tiled_linear import TiledLinear, TileGrid


class LogisticOutput(nn.Module):
    """Two logits -z/2 and z/2 of a single value z.

    Their cross-entropy is the logistic loss of z: log(1 + exp(-y z)) for labels y = -1, 1.
    """

    halves: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("halves", torch.tensor([-0.5, 0.5]), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Return logits of shape ``(n, 2)`` of values of shape ``(n, 1)``."""
        return z * self.halves


@MODELS.register("linear")
def linear(
    context: BuildContext,
    *,
    start: Literal["uniform", "normal", "zeros"] = "uniform",
    output: Literal["softmax", "logistic"] = "softmax",
) -> nn.Module:
    """Linear classifier with the norm on its inputs (galloway2019, section 3).

    There is no hidden layer to normalize: the norm acts on the flattened input, each of
    whose values is a feature. ``start`` is the initialization: ``uniform`` is PyTorch's
    default (variance 1 / (3 d) for d inputs), ``normal`` Glorot and Bengio's of variance
    2 / (d + units). Weights of pixels that are always black keep their initial value,
    which an attack can exploit; ``zeros`` sets all weights and biases to 0.

    ``output=logistic`` is the paper's model of two classes: one unit, ``w x + b``, trained
    on the logistic loss. ``softmax`` has a unit a class. Of two classes only the difference
    of the two units counts; under gradient descent it moves twice as far each step.
    """
    count, units = context.features(), context.classes
    if output == "logistic":
        if units != 2:
            raise ValueError(
                f"output=logistic of {context.name} is for 2 classes, not {units}: choose "
                "two with data.classes, or output=softmax"
            )
        units = 1
    classifier = nn.Linear(count, units)
    if start == "normal":
        nn.init.xavier_normal_(classifier.weight)
    if start == "zeros":
        nn.init.zeros_(classifier.weight)
        nn.init.zeros_(classifier.bias)
    layers: dict[str, nn.Module] = {
        "flatten": nn.Flatten(),
        "norm": context.norm(count),
        "classifier": classifier,
    }
    if output == "logistic":
        layers["output"] = LogisticOutput()
    return context.assemble(layers)


@MODELS.register("mlp")
def mlp(
    context: BuildContext,
    *,
    width: PositiveInt = 1000,
    depth: NonNegativeInt = 2,
    start: Literal["uniform", "he"] = "uniform",
    activation: Literal["relu", "none"] = "relu",
    tile: PositiveInt = 1,
) -> nn.Module:
    """Fully connected network: ``depth`` hidden layers of ``width`` units, norm and ReLU.

    The defaults are those of galloway2019, appendix H. Every linear layer has a bias. A
    depth of 0 is a linear classifier without norm. ``start`` is the initialization:
    ``uniform`` is PyTorch's default, of variance 1 / (3 d) for d inputs, under which
    signals shrink from layer to layer; ``he`` is He et al.'s (2015), normal of variance
    2 / d with biases 0, under which they do not. ``activation=none`` makes it a deep linear
    network (galloway2019, Figure 8). Where every pixel of the images was enlarged to
    ``tile x tile`` equal pixels, the first layer trains as fast as on the small images,
    with the same result under SGD (:mod:`advnorm.models.tiled_linear`).
    """
    count = context.features()
    hidden: list[nn.Module] = []
    for inputs in [count, *[width] * depth][:depth]:
        last = nn.ReLU() if activation == "relu" else nn.Identity()
        hidden += [nn.Linear(inputs, width), context.norm(width), last]
    layers = {
        "flatten": nn.Flatten(),
        "hidden": nn.Sequential(*hidden),
        "classifier": nn.Linear(width if depth else count, context.classes),
    }
    model = context.assemble(layers)
    if start == "he":
        _he_init(model)
    if tile != 1:
        _tile_first_layer(model, TileGrid.of(context, tile))
    return model


def _tile_first_layer(model: nn.Module, grid: TileGrid) -> None:
    """Replace the first of several linear layers by one for tiles."""
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if len(names) < 2:
        raise ValueError(
            "option tile of mlp needs a hidden layer: set a depth of at least 1"
        )
    first = model.get_submodule(names[0])
    assert isinstance(first, nn.Linear)
    model.set_submodule(names[0], TiledLinear(first, grid))


def _he_init(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
