"""How apart2022 trains (section 4.1): standard training, SAM, APART and APART-SAM.

What the paper leaves open, and what is chosen: APART's settings in the main tables are the
best of a few that its appendix lists; here they are those of its code's commands where
there are any (github.com/unknown9567/apart), else those that are best in Table 3 (eps 0.1,
all samples, 16 groups), and mixup has the parameter of standard training. The
pre-activation ResNet-18 is that of the code that the paper cites ([58],
github.com/kuangliu/pytorch-cifar), without a last norm. The one in the authors' repository
(main/models/resnet.py) differs: norm and ReLU follow the stem, and identity shortcuts carry
the activated value. All images but 0.2% are trained on, and the last weights count. The
paper's deviations over five seeds are shown as standard errors.

``reduced``: CIFAR-10 at 16x16, 1,000 images, a WideResNet-10-1 (or a pre-activation
ResNet-18 of width 8), mirrored but not moved, batches of 64, 30 epochs.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Literal, NamedTuple

from advnorm.recipe import Recipe, override
from advnorm.records import Scale

Network = Literal["WRN", "PRN", "ResNet-18"]
Images = Literal["CIFAR-10", "CIFAR-100", "Tiny-ImageNet", "ImageNet"]
BATCH: dict[Scale, int] = {"full": 128, "reduced": 64, "smoke": 32}
_EPOCHS: dict[Scale, int] = {"full": 200, "reduced": 30, "smoke": 1}
_NETWORKS: dict[Scale, dict[Network, str]] = {
    "full": {
        "WRN": "model.name=wide_resnet40_2",
        "PRN": "model={name: preact_resnet18, options: {end: none, start: uniform}}",
        "ResNet-18": "model.name=resnet18",
    },
    "reduced": {
        "WRN": "model={name: wide_resnet, options: {depth: 10, widen: 1}}",
        "PRN": "model={name: preact_resnet18, options: {width: 8}}",
        "ResNet-18": "model={name: preact_resnet18, options: {width: 8}}",
    },
    "smoke": {
        "WRN": "model={name: wide_resnet, options: {depth: 10, widen: 1}}",
        "PRN": "model={name: preact_resnet18, options: {width: 4}}",
        "ResNet-18": "model={name: preact_resnet18, options: {width: 4}}",
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


class Chosen(NamedTuple):
    """APART's radius and groups, and APART-SAM's radius of the weights."""

    eps: float
    groups: int
    rho: float


_CHOSEN: dict[Images, Chosen] = {
    "CIFAR-10": Chosen(0.1, 16, 0.05),
    "CIFAR-100": Chosen(0.1, 16, 0.2),
    "Tiny-ImageNet": Chosen(0.1, 8, 0.2),
    "ImageNet": Chosen(0.025, 1, 0.025),
}
"""From the commands of the code that the paper names.

It has none of CIFAR-10: rho there is SAM's own, 0.05.
"""


def chosen(scale: Scale, images: Images) -> Chosen:
    """Return APART's settings; where not full, all are those of CIFAR-10, rho SAM's."""
    if scale == "full":
        return _CHOSEN[images]
    return _CHOSEN["CIFAR-10"]._replace(rho=RHO.get(images, RHO["CIFAR-10"]))


def apart(scale: Scale, *, eps: float = 0.1, share: float = 1.0, groups: int = 16) -> str:
    """Take this share of a batch into APART's second pass."""
    samples = round(BATCH[scale] * share / groups) * groups
    rule = f"name: apart, eps: {eps}, samples: {samples}, groups: {groups}"
    return f"gradient={{{rule}}}"


def apart_sam(how: Chosen) -> str:
    """Move the weights too."""
    rule = f"name: apart_sam, eps: {how.eps}, rho: {how.rho}, groups: {how.groups}"
    return f"gradient={{{rule}}}"


def sam(rho: float) -> str:
    """Move the weights alone."""
    return f"gradient={{name: sam, rho: {rho}}}"


def recipe(
    scale: Scale, network: Network, images: Images, *changes: str, longer: float = 1.0
) -> Recipe:
    """SGD, rate 0.1, momentum 0.9, weight decay 5e-4, 200 epochs, batches of 128.

    The rate falls tenfold after half and three quarters of the epochs. ``longer`` is the
    factor of all epochs of a larger budget.
    """
    epochs = round(_EPOCHS[scale] * longer)
    return override(
        Recipe(name="apart2022"),
        [
            *_images(scale, images),
            _NETWORKS[scale][network],
            "objective.name=standard",
            "threat.eps=8/255",
            "optimizer={lr: 0.1, momentum: 0.9, weight_decay: 5e-4}",
            f"optimizer.schedule={falls(epochs, (0.5, 0.75))}",
            f"epochs={epochs}",
            f"batch_size={BATCH[scale]}",
            "validation={every: 100000, samples: 50, steps: 1, select_by: clean}",
            "evaluation={conditions: [clean], weights: last}",
            *changes,
        ],
    )


def falls(epochs: int, shares: Sequence[float]) -> str:
    """Divide the rate by 10 after these shares of the epochs."""
    at = [round(epochs * share, 6) for share in shares]
    return f"{{kind: piecewise, at: {at}}}"


def of_five(mean: float, deviation: float) -> tuple[float, float]:
    """Return a mean and its standard error, from the deviation over five seeds."""
    return mean, round(deviation / sqrt(5), 2)


def _images(scale: Scale, images: Images) -> list[str]:
    if scale == "full":
        # ImageNet's are read as random parts, resized: they are cropped already.
        augment = "flip" if images == "ImageNet" else "crop_flip"
        return [
            f"data={{name: {_DATA[images]}, augment: {augment}, validation: 0.002}}",
            "channels_last=true",
        ]
    small = "name: cifar10, size: 16, train: 1000, test: 1000"
    tiny = "name: digits, train: 120, test: 40"
    return [f"data={{{small if scale == 'reduced' else tiny}, augment: flip}}"]
