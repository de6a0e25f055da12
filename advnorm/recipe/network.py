"""What is trained: the data, the network and its normalization."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from advnorm.recipe.values import Count, Factor, Option, Spec, Whole, number


class Data(Spec):
    """Which images, and what is done to them before the model sees them."""

    name: str = "digits"
    size: Count | None = None
    """Resize to this many pixels a side."""
    resample: Literal["bilinear", "nearest"] = "bilinear"
    """How: between pixels, or each new one as the nearest old one (galloway2019, F)."""
    classes: tuple[Whole, ...] | None = None
    """Keep these classes only (galloway2019 Table 1: 3 and 7)."""
    train: Count | None = None
    """Draw this many training samples, uniformly per class."""
    test: Count | None = None
    validation: Annotated[float, BeforeValidator(number), Field(gt=0, lt=1)] = 0.1
    """The held-out share of the training samples, where the set has no validation split."""
    augment: str = "none"
    mixup: Factor = 0.0
    """Beta parameter of mixup; 0 is none."""
    smoothing: Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)] = 0.0
    """Share of each label that is spread over all classes; 0 is none."""
    workers: Annotated[Whole, Field(ge=0)] = 2
    """Processes that read image folders."""


class Model(Spec):
    """Which network. ``options`` are those of its constructor: ``advnorm list models``."""

    name: str = "mlp"
    options: dict[str, Option] = {}
    standardize: Literal["data", "per_image", "none"] = "data"
    """The first layer: by the training data's moments, by each image's own, or nothing."""


class Norm(Spec):
    """Which normalization. ``options`` are those of ``advnorm list norms``."""

    name: str = "batch"
    options: dict[str, Option] = {}
    where: Literal["all", "input"] | tuple[Whole, ...] = "all"
    """On every place, on the network's input alone, or on these places (from 0)."""
    freeze_last: Annotated[Whole, Field(ge=0)] = 0
    """Train the last so many epochs with the running statistics (xie2020, 4.3: 10)."""
