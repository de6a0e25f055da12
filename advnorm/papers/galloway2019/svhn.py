"""VGGs on SVHN (E.1), and unbounded examples of a small CNN there (J.2)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, more, within
from advnorm.papers.galloway2019.cifar import large
from advnorm.papers.galloway2019.nets import (
    CIFAR,
    L2,
    LINF,
    PerturbationSizes,
    pixels,
    recipe,
    vgg,
)
from advnorm.recipe import NormSpec, Recipe, override
from advnorm.records import Scale

_COLUMNS = ("Clean", "Noise", LINF, L2)
_SVHN = PerturbationSizes(0.015, 0.125)


def _trained(depth: int, *, norm: bool) -> Recipe:
    """50 epochs from a rate of 0.01, a tenth of it from epoch 25 and again from 40.

    No augmentation, and not the "extra" images. Weight decay, which the paper does not
    give for SVHN, is that of CIFAR-10.
    """
    return vgg(
        "full",
        depth,
        "data={name: svhn}",
        "optimizer.schedule={kind: piecewise, at: [25, 40]}",
        f"threat.eps={_SVHN.eps}",
        _SVHN.attacks,
        norm=norm,
        epochs=50,
    )


_NORMED = "VGG8, batch norm"
_VGG8 = {_NORMED: ((94.46, 0.02), (78.1, 0.6), (10, 1), (1.6, 0.3))}


@artefact(
    "galloway2019/table9",
    "VGG8 on SVHN, with and without batch norm",
    columns=_COLUMNS,
    published={
        "VGG8": ((92.60, 0.04), (83.6, 0.2), (27.1, 0.3), (22.0, 0.8)),
        **_VGG8,
    },
    claims=(
        Claim(
            "batch norm raises clean accuracy (1.9 points in the paper)",
            (more(("VGG8, batch norm", "Clean"), ("VGG8", "Clean")),),
        ),
        Claim(
            "batch norm lowers accuracy under noise and PGD (5 to 20 points in the paper)",
            tuple(
                more(("VGG8", column), ("VGG8, batch norm", column))
                for column in _COLUMNS[1:]
            ),
        ),
    ),
)
def table9(scale: Scale) -> Sequence[Job]:
    """VGG8 at a small rate, five seeds. Where not full: the CIFAR-10 runs of Table 2."""
    rows = {"VGG8": False, "VGG8, batch norm": True}
    if scale == "full":
        return [
            _SVHN.job(row, _trained(8, norm=norm), pixels=3072)
            for row, norm in rows.items()
        ]
    recipes = {row: vgg(scale, 8, norm=norm) for row, norm in rows.items()}
    return [CIFAR[scale].job(row, one, pixels=pixels(one)) for row, one in recipes.items()]


@artefact(
    "galloway2019/table10",
    "Deeper VGGs on SVHN, which train with batch norm only",
    columns=_COLUMNS,
    published={
        **_VGG8,
        "VGG11": ((95.31, 0.03), (80.5, 1), (20.2, 0.2), (6.1, 0.2)),
        "VGG13": ((95.88, 0.05), (77.2, 7), (21.7, 0.5), (5.4, 0.2)),
        "VGG16": ((94.59, 0.05), (78.1, 4), (19.2, 0.3), (3.0, 0.2)),
        "VGG19": ((95.1, 0.3), (78, 1), (24.2, 0.6), (4.1, 0.4)),
    },
    claims=(
        Claim(
            "none of them is much more robust under PGD-l2 than VGG8 with batch norm "
            "(asked for: under 10 points more)",
            tuple(
                within((f"VGG{depth}", L2), (_NORMED, L2), 10) for depth in (11, 13, 16, 19)
            ),
            scales=("full",),
        ),
        Claim(
            "under PGD-linf they all do better than it",
            tuple(
                more((f"VGG{depth}", LINF), (_NORMED, LINF)) for depth in (11, 13, 16, 19)
            ),
            scales=("full",),
        ),
    ),
)
def table10(scale: Scale) -> Sequence[Job]:
    """VGG11 to 19 with batch norm as in Table 9, and its VGG8 with batch norm.

    Where not full: the runs of Table 3.
    """
    if scale == "full":
        rows = {_NORMED: 8, **{f"VGG{depth}": depth for depth in (11, 13, 16, 19)}}
        return [
            _SVHN.job(row, _trained(depth, norm=True), pixels=3072)
            for row, depth in rows.items()
        ]
    depths = (13, 16) if scale == "reduced" else (13,)
    recipes = {depth: large(scale, depth, norm=True) for depth in depths}
    return [
        CIFAR[scale].job(f"VGG{depth}", one, pixels=pixels(one))
        for depth, one in recipes.items()
    ]


def _cnns(scale: Scale) -> dict[str, Recipe]:
    """50 epochs of SGD at a constant rate of 0.01 with batches of 128.

    The baseline has weight decay 0.01 and standardizes each image; its pixels are clipped
    to [-1, 1], as in Figure 12, to which the paper refers. The loss is not weighted by the
    frequency of the classes, as the paper's is; images are in colour, though its Table 15
    has one channel. Where not full: CIFAR-10, 4,000 images, 10 epochs.
    """
    data = {
        "full": ["data={name: svhn, validation: 0.002}"],
        "reduced": ["epochs=10", "batch_size=32", "data.augment=none"],
        "smoke": [],
    }
    base = recipe(
        scale,
        "cnn",
        "model={name: cnn_cleverhans}",
        "optimizer={lr: 0.01, momentum: 0}",
        "evaluation={conditions: [clean], weights: last}",
        *data[scale],
        epochs=50,
    )
    plain = [
        "model.standardize=per_image",
        "optimizer.weight_decay=0.01",
        "threat.bounds=[-1, 1]",
    ]
    return {
        "No norm": override(base, plain),
        "BN": base.replace(norm=NormSpec(name="batch")),
    }


@artefact(
    "galloway2019/figure14",
    "Fooling images of a small CNN on SVHN",
    columns=("clean",),
    published={"No norm": (90.0,), "BN": (90.0,)},
    claims=(
        Claim(
            "the batch-normalized network is fooled in fewer steps",
            (more(("No norm", "steps"), ("BN", "steps")),),
        ),
    ),
    shown=("fooling_images",),
)
def figure14(scale: Scale) -> Sequence[Job]:
    """From noise, up to 100 steps of length 0.2 towards each class, as Figure 12.

    The paper compares by eye, and gives "about 90%" for both clean accuracies. The start is
    read as in Figure 12.
    """
    numbers = {
        "clean": "clean",
        "margin": "fooling_images/mean margin",
        "steps": "fooling_images/mean steps",
    }
    asked = {"fooling_images": ("steps=10",) if scale == "smoke" else ()}
    return [Job(row, one, numbers, asked) for row, one in _cnns(scale).items()]


@artefact(
    "galloway2019/figure15",
    "Every class of SVHN turned into every other",
    claims=(
        Claim(
            "the batch-normalized network is turned by smaller changes",
            (more(("No norm", "L2 distance"), ("BN", "L2 distance")),),
        ),
    ),
    shown=("source_target",),
)
def figure15(scale: Scale) -> Sequence[Job]:
    """BIM-l2 from an image of each class, until the target has a margin of 90%.

    At most 100 steps of length 0.2, which the paper does not give. It compares by eye. Its
    stop is one for all, where the baseline's mean margin is 90%; here each image stops at
    its own. It has a random image of each class, here the first of the test images.
    """
    numbers = {
        "clean": "clean",
        "margin": "source_target/mean margin",
        "L2 distance": "source_target/mean L2 distance",
    }
    asked = {"source_target": ("steps=5",) if scale == "smoke" else ()}
    return [
        Job(row, one, numbers, asked, samples=20 if scale == "smoke" else 200)
        for row, one in _cnns(scale).items()
    ]
