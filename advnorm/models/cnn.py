"""The small, medium and large CNNs of sridhar2021, Table 4 (after Gowal et al., 2019)."""

from dataclasses import dataclass, replace
from math import prod

from torch import nn

from advnorm.models import shapes
from advnorm.models.layers import assemble
from advnorm.models.registry import MODELS
from advnorm.norms import Norm


@dataclass(frozen=True)
class CNNArchitecture:
    """An architecture: convolutions (maps, kernel, stride), then hidden layers."""

    name: str
    convolutions: tuple[tuple[int, int, int], ...]
    hidden: tuple[int, ...]
    padding: int

    def with_width(self, width: int) -> "CNNArchitecture":
        """Return the plan whose first convolution has ``width`` maps, all else in step."""
        first = self.convolutions[0][0]

        def scaled(size: int) -> int:
            return max(1, size * width // first)

        convolutions = tuple((scaled(m), kernel, by) for m, kernel, by in self.convolutions)
        hidden = tuple(map(scaled, self.hidden))
        return replace(self, convolutions=convolutions, hidden=hidden)

    def side(self, size: int) -> int:
        """Return one side of the last feature map; 0 where the input is too small."""
        for _, kernel, stride in self.convolutions:
            size = shapes.after(size, kernel, stride=stride, padding=self.padding)
            if size < 1:
                return 0
        return size

    @property
    def least(self) -> int:
        """Return the smallest side of an image that leaves a feature map."""
        return next(size for size in range(1, 100) if self.side(size))


SMALL = CNNArchitecture("cnn_small", ((16, 4, 2), (32, 4, 1)), (100,), padding=0)
MEDIUM = CNNArchitecture(
    "cnn_medium", ((32, 3, 1), (32, 4, 2), (64, 3, 1), (64, 4, 2)), (512, 512), padding=0
)
LARGE = CNNArchitecture(
    "cnn_large",
    ((64, 3, 1), (64, 3, 1), (128, 3, 2), (128, 3, 1), (128, 3, 1)),
    (512,),
    padding=1,
)


def plain(
    plan: CNNArchitecture,
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None,
    width: int,
) -> nn.Module:
    """Build a plan: every convolution and hidden layer is followed by norm and ReLU.

    All layers have biases, also before a norm. PyTorch's default initialization.
    ``width`` is the number of maps of the first convolution.
    """
    plan = plan.with_width(shapes.positive("width", width, model=plan.name))
    channels, *sides = shapes.image(shape, model=plan.name, least=plan.least)
    convolutions: list[nn.Module] = []
    for maps, kernel, stride in plan.convolutions:
        conv = nn.Conv2d(channels, maps, kernel, stride=stride, padding=plan.padding)
        convolutions += [conv, norm(maps), nn.ReLU()]
        channels = maps
    features = channels * prod(map(plan.side, sides))
    hidden: list[nn.Module] = []
    for size in plan.hidden:
        hidden += [nn.Linear(features, size), norm(size), nn.ReLU()]
        features = size
    layers = {
        "convolutions": nn.Sequential(*convolutions),
        "flatten": nn.Flatten(),
        "hidden": nn.Sequential(*hidden),
        "classifier": nn.Linear(features, classes),
    }
    return assemble(standardize, layers)


@MODELS.register("cnn_small")
def cnn_small(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 16,
) -> nn.Module:
    """Small CNN of sridhar2021, Table 4: 470,918 parameters (CIFAR-10, no norm)."""
    return plain(
        SMALL,
        shape=shape,
        classes=classes,
        norm=norm,
        standardize=standardize,
        width=width,
    )


@MODELS.register("cnn_medium")
def cnn_medium(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 32,
) -> nn.Module:
    """Medium CNN of sridhar2021, Table 4: 1,188,906 parameters (CIFAR-10, no norm)."""
    return plain(
        MEDIUM,
        shape=shape,
        classes=classes,
        norm=norm,
        standardize=standardize,
        width=width,
    )


@MODELS.register("cnn_large")
def cnn_large(
    *,
    shape: tuple[int, ...],
    classes: int,
    norm: Norm,
    standardize: nn.Module | None = None,
    width: int = 64,
) -> nn.Module:
    """Large CNN of sridhar2021, Table 4: 17,190,602 parameters (CIFAR-10, no norm)."""
    return plain(
        LARGE,
        shape=shape,
        classes=classes,
        norm=norm,
        standardize=standardize,
        width=width,
    )
