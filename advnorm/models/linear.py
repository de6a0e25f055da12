"""Linear classifiers and fully connected networks, for inputs of any shape."""

from torch import nn

from advnorm.models import shapes
from advnorm.models.layers import assemble
from advnorm.models.registry import MODELS
from advnorm.models.tiled_linear import TiledLinear, TileGrid
from advnorm.norms import Norm


@MODELS.register("linear")
def linear(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    start: str = "uniform",
) -> nn.Module:
    """Linear classifier, whose norm is on its inputs (galloway2019, section 3).

    There is no hidden layer to normalize: the norm acts on the flattened input, each of
    whose values is a feature. A ``start`` of ``uniform`` is PyTorch's own (variance
    1 / (3 d) for d inputs), one of ``normal`` is Glorot and Bengio's of variance
    2 / (d + classes): what it puts on pixels that are always black stays there, and an
    attack finds it. One of ``zeros`` puts nothing there, nor on the bias.
    """
    if start not in {"uniform", "normal", "zeros"}:
        raise ValueError(f"linear starts uniform, normal or zeros, not {start!r}")
    count = shapes.features(shape, model="linear")
    classifier = nn.Linear(count, classes)
    if start == "normal":
        nn.init.xavier_normal_(classifier.weight)
    if start == "zeros":
        nn.init.zeros_(classifier.weight)
        nn.init.zeros_(classifier.bias)
    layers = {"flatten": nn.Flatten(), "norm": norm(count), "classifier": classifier}
    return assemble(standardize, layers)


@MODELS.register("mlp")
def mlp(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 1000,
    depth: int = 2,
    start: str = "uniform",
    activation: str = "relu",
    tile: int = 1,
) -> nn.Module:
    """Fully connected network: ``depth`` hidden layers of ``width``, each linear-norm-ReLU.

    The defaults are those of galloway2019, appendix H. Every linear layer has a bias. A
    depth of 0 is a linear classifier without norm. A ``start`` of ``uniform`` is PyTorch's
    own, of variance 1 / (3 d) for d inputs: signals shrink from layer to layer. That of
    ``he`` is He et al.'s (2015), normal of variance 2 / d with biases 0: they do not.
    Without ``activation`` (``none``) it is a deep linear network (galloway2019, Figure 8).
    On images whose every pixel was enlarged to a ``tile`` of so many a side, the first
    layer is trained as fast as on the small ones, and is the same under SGD
    (:mod:`advnorm.models.tiled_linear`).
    """
    if start not in {"uniform", "he"}:
        raise ValueError(f"mlp starts uniform or he, not {start!r}")
    if activation not in {"relu", "none"}:
        raise ValueError(f"the activation of mlp is relu or none, not {activation!r}")
    if depth < 0:
        raise ValueError(f"mlp needs a depth of at least 0, not {depth}")
    shapes.positive("width", width, model="mlp")
    count = shapes.features(shape, model="mlp")
    hidden: list[nn.Module] = []
    for inputs in [count, *[width] * depth][:depth]:
        last = nn.ReLU() if activation == "relu" else nn.Identity()
        hidden += [nn.Linear(inputs, width), norm(width), last]
    layers = {
        "flatten": nn.Flatten(),
        "hidden": nn.Sequential(*hidden),
        "classifier": nn.Linear(width if depth else count, classes),
    }
    model = assemble(standardize, layers)
    if start == "he":
        _he_init(model)
    if tile != 1:
        _know_tiles(model, TileGrid.of(shape, tile, model="mlp"))
    return model


def _know_tiles(model: nn.Module, grid: TileGrid) -> None:
    """Have the first of several linear layers know of tiles."""
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if len(names) < 2:
        raise ValueError("mlp has tiles on a hidden layer: give it a depth of at least 1")
    first = model.get_submodule(names[0])
    assert isinstance(first, nn.Linear)
    model.set_submodule(names[0], TiledLinear(first, grid))


def _he_init(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
