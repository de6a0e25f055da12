"""The sections of the data, the network and its normalization."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from advnorm.recipe.values import (
    Count,
    Factor,
    Option,
    Samples,
    Spec,
    Unit,
    Whole,
    number,
)

Fraction = Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)]


class DataSpec(Spec):
    """The images, and how they are prepared."""

    name: str = "digits"
    """``advnorm list data``, or the path of an image folder."""
    digest: str | None = None
    """SHA-256 of data that were passed in Python, filled in when a run begins."""
    size: Annotated[Count, Unit("pixels")] | None = None
    """Resize images to this many pixels a side."""
    resample: Literal["bilinear", "nearest"] = "bilinear"
    """How to resize (galloway2019, appendix F: nearest)."""
    classes: tuple[Whole, ...] | None = None
    """Keep only these classes (galloway2019 Table 1: 3 and 7)."""
    train: Samples | None = None
    """Use only N training samples, drawn uniformly per class."""
    test: Samples | None = None
    """Use only N test samples, drawn uniformly per class."""
    validation: Annotated[
        float, BeforeValidator(number), Field(gt=0, lt=1), Unit("share of the samples")
    ] = 0.1
    """Fraction of the training samples that is held out, where the data set has no
    validation split."""
    augment: str = "none"
    """``advnorm list augmentations``."""
    mixup: Factor = 0.0
    """Parameter of mixup's Beta distribution; 0 turns mixup off."""
    label_smoothing: Annotated[Fraction, Unit("share of a label")] = 0.0
    """Fraction of each label that is spread over all classes."""
    workers: Annotated[Whole, Field(ge=0), Unit("processes")] = 2
    """Processes that read image folders."""


class ModelSpec(Spec):
    """The network."""

    name: str = "mlp"
    """``advnorm list models``, or one of your own: ``FILE.py:NAME``, ``timm:NAME``,
    ``hf:NAME``."""
    digest: str | None = None
    """SHA-256 of the file of a model of your own, filled in when a run begins."""
    options: dict[str, Option] = {}
    """Arguments of its constructor, such as ``{width: 64}``."""
    standardize: Literal["data", "per_image", "none"] = "data"
    """The first layer: standardize by the moments of the training data, by those of each
    image, or not at all."""


class NormSpec(Spec):
    """The normalization layers."""

    name: str = "batch"
    """``advnorm list norms``."""
    options: dict[str, Option] = {}
    """Arguments of its constructor, such as ``{eps: 1e-3}``."""
    apply: Literal["build", "convert"] = "build"
    """The model is built with the norm; or built with batch norm, which is converted."""
    where: Literal["all", "input"] | tuple[Whole, ...] = "all"
    """Normalize everywhere, the network's input only, or these places (counted from 0)."""
    freeze_epochs: Annotated[Whole, Field(ge=0), Unit("epochs")] = 0
    """Train the last N epochs with frozen running statistics (xie2020, 4.3: 10)."""
