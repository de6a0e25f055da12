"""How apart2022 trains (section 4.1): standard training, SAM, APART and APART-SAM.

What the paper leaves open, and what is chosen: APART's settings in the main tables are the
best of a few that its appendix lists; here they are those of its code's commands where
there are any (github.com/unknown9567/apart), else those that are best in Table 3 (eps 0.1,
all samples, 16 groups), and mixup has the parameter of standard training. The
pre-activation ResNet-18 is that of the code that the paper cites ([58],
github.com/kuangliu/pytorch-cifar), without a last norm. The one in the authors' repository
(main/models/resnet.py) differs: norm and ReLU follow the stem, and identity shortcuts carry
the activated value. All images but 0.2% are trained on, and the last weights count. At full
the second pass takes the moments of the shift as constants, as the authors' code does. The
paper's deviations over five seeds are shown as standard errors.

``reduced``: CIFAR-10 at 16x16, 5,000 images, a WideResNet-10-2 (or a pre-activation
ResNet-18 of width 8), flipped but not cropped, batches of 64, 40 epochs, all test images.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Literal, NamedTuple, Unpack

from advnorm.evaluation.perturbed_statistics import Perturbation
from advnorm.papers.numbers import MeanNumber, NumberSource, ResultNumber
from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    GradientSpec,
    ModelSpec,
    ObjectiveSpec,
    OptimizerSpec,
    Piecewise,
    Recipe,
    RecipeChanges,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.records import Scale

Network = Literal["WRN", "PRN", "ResNet-18"]
Images = Literal["CIFAR-10", "CIFAR-100", "Tiny-ImageNet", "ImageNet"]
BATCH: dict[Scale, int] = {"full": 128, "reduced": 64, "smoke": 32}
_EPOCHS: dict[Scale, int] = {"full": 200, "reduced": 40, "smoke": 1}


def _small_wrn(widen: int) -> ModelSpec:
    return ModelSpec(name="wide_resnet", options={"depth": 10, "widen": widen})


def _preact_resnet(width: int) -> ModelSpec:
    return ModelSpec(name="preact_resnet18", options={"width": width})


_NETWORKS: dict[Scale, dict[Network, ModelSpec]] = {
    "full": {
        "WRN": ModelSpec(name="wide_resnet40_2"),
        "PRN": ModelSpec(
            name="preact_resnet18", options={"end": "none", "start": "uniform"}
        ),
        "ResNet-18": ModelSpec(name="resnet18"),
    },
    "reduced": {
        "WRN": _small_wrn(widen=2),
        "PRN": _preact_resnet(width=8),
        "ResNet-18": _preact_resnet(width=8),
    },
    "smoke": {
        "WRN": _small_wrn(widen=1),
        "PRN": _preact_resnet(width=4),
        "ResNet-18": _preact_resnet(width=4),
    },
}
_DATA: dict[Images, str] = {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "Tiny-ImageNet": "tiny-imagenet",
    "ImageNet": "imagenet",
}
RHO: dict[Images, float] = {"CIFAR-10": 0.05, "CIFAR-100": 0.1}
"""SAM's radius."""


class ApartSettings(NamedTuple):
    """APART's radius and groups, and APART-SAM's radius of the weights."""

    eps: float
    groups: int
    rho: float


_SETTINGS: dict[Images, ApartSettings] = {
    "CIFAR-10": ApartSettings(0.1, 16, 0.05),
    "CIFAR-100": ApartSettings(0.1, 16, 0.2),
    "Tiny-ImageNet": ApartSettings(0.1, 8, 0.2),
    "ImageNet": ApartSettings(0.025, 1, 0.025),
}
"""From the commands of the code that the paper names.

It has none of CIFAR-10: rho there is SAM's own, 0.05.
"""


def apart_settings(scale: Scale, images: Images) -> ApartSettings:
    """Return APART's settings; where not full, all are those of CIFAR-10, rho SAM's."""
    if scale == "full":
        return _SETTINGS[images]
    return _SETTINGS["CIFAR-10"]._replace(rho=RHO.get(images, RHO["CIFAR-10"]))


def apart(
    scale: Scale, *, eps: float = 0.1, share: float = 1.0, groups: int = 16
) -> GradientSpec:
    """Take this share of a batch into APART's second pass."""
    samples = round(BATCH[scale] * share / groups) * groups
    return GradientSpec(
        name="apart", eps=eps, samples=samples, groups=groups, detached=_detached(scale)
    )


def apart_sam(scale: Scale, settings: ApartSettings) -> GradientSpec:
    """Perturb the weights too."""
    eps, groups, rho = settings
    return GradientSpec(
        name="apart_sam", eps=eps, rho=rho, groups=groups, detached=_detached(scale)
    )


def _detached(scale: Scale) -> bool | None:
    """Follow the authors' code at full, Eq. 3 elsewhere."""
    return True if scale == "full" else None


def sam(rho: float) -> GradientSpec:
    """Perturb the weights alone."""
    return GradientSpec(name="sam", rho=rho)


def recipe(
    scale: Scale,
    network: Network,
    images: Images,
    *,
    longer: float = 1.0,
    **changes: Unpack[RecipeChanges],
) -> Recipe:
    """SGD, rate 0.1, momentum 0.9, weight decay 5e-4, 200 epochs, batches of 128.

    The rate falls tenfold after half and three quarters of the epochs. ``longer`` is the
    factor of all epochs of a larger budget.
    """
    epochs = round(_EPOCHS[scale] * longer)
    return Recipe(
        name="apart2022",
        data=_images(scale, images),
        channels_last=scale == "full",
        model=_NETWORKS[scale][network],
        objective=ObjectiveSpec(name="standard"),
        threat=ThreatSpec(eps=8 / 255),
        optimizer=OptimizerSpec(
            lr=0.1,
            momentum=0.9,
            weight_decay=5e-4,
            schedule=Piecewise.at_shares(epochs, (0.5, 0.75)),
        ),
        epochs=epochs,
        batch_size=BATCH[scale],
        validation=ValidationSpec(every=100000, samples=50, steps=1, select_by="clean"),
        evaluation=EvaluationSpec(conditions=("clean",), weights="last"),
    ).replace(**changes)


def perturbed_numbers(
    perturbation: Perturbation, radii: Sequence[float], draws: int = 1
) -> dict[str, NumberSource]:
    """Return where the accuracy at each radius of perturbed statistics is.

    Of several draws it is the mean over their directions.
    """
    names = [replace(perturbation, draw=draw).name for draw in range(draws)]
    return {
        f"{radius:g}": MeanNumber(
            tuple(ResultNumber(name, eps=radius, norm=perturbation.part) for name in names)
        )
        if draws > 1
        else ResultNumber(perturbation.name, eps=radius, norm=perturbation.part)
        for radius in radii
    }


def of_five(mean: float, deviation: float) -> tuple[float, float]:
    """Return a mean and its standard error, from the deviation over five seeds."""
    return mean, round(deviation / sqrt(5), 2)


def _images(scale: Scale, images: Images) -> DataSpec:
    if scale == "reduced":
        return DataSpec(name="cifar10", size=16, train=5000, augment="flip")
    if scale == "smoke":
        return DataSpec(name="digits", train=120, test=40, augment="flip")
    # ImageNet's are read as random parts, resized: they are cropped already.
    augment = "flip" if images == "ImageNet" else "crop_flip"
    return DataSpec(name=_DATA[images], augment=augment, validation=0.002)
