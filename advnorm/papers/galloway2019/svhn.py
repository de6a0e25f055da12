"""VGGs on SVHN (E.1), and unbounded examples of a small CNN there (J.2)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, ahead, more, within
from advnorm.papers.galloway2019.cifar import large
from advnorm.papers.galloway2019.lenet import fooling_jobs
from advnorm.papers.galloway2019.nets import (
    CIFAR,
    L2,
    LINF,
    PerturbationSizes,
    recipe,
    vgg,
)
from advnorm.papers.numbers import CLEAN, AnswerNumber
from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    NormSpec,
    OptimizerSpec,
    Piecewise,
    Recipe,
    RecipeChanges,
    ThreatSpec,
)
from advnorm.records import Scale

_COLUMNS = ("Clean", "Noise", LINF, L2)
_SVHN = PerturbationSizes(0.015, 0.125)


def _svhn_vgg(depth: int, *, norm: bool) -> Recipe:
    """50 epochs from a learning rate of 0.01, divided by 10 at epochs 25 and 40.

    No augmentation, and not the "extra" images. Weight decay, which the paper does not
    give for SVHN, is that of CIFAR-10.
    """
    return vgg("full", depth, norm=norm, epochs=50).replace(
        data=DataSpec(name="svhn", augment="none"),
        optimizer=OptimizerSpec(schedule=Piecewise(at=(25, 40))),
        threat=ThreatSpec(eps=_SVHN.eps),
        evaluation=_SVHN.evaluation,
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
            ahead("VGG8", "VGG8, batch norm", _COLUMNS[1:]),
        ),
    ),
)
def table9(scale: Scale) -> Sequence[Job]:
    """VGG8 at a small learning rate, five seeds.

    Where not full: the CIFAR-10 runs of Table 2.
    """
    rows = {"VGG8": False, "VGG8, batch norm": True}
    if scale == "full":
        recipes = {row: _svhn_vgg(8, norm=norm) for row, norm in rows.items()}
        return _SVHN.jobs_with_l2(recipes)
    recipes = {row: vgg(scale, 8, norm=norm) for row, norm in rows.items()}
    return CIFAR[scale].jobs_with_l2(recipes)


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
        recipes = {row: _svhn_vgg(depth, norm=True) for row, depth in rows.items()}
        return _SVHN.jobs_with_l2(recipes)
    depths = (13, 16) if scale == "reduced" else (13,)
    recipes = {f"VGG{depth}": large(scale, depth, norm=True) for depth in depths}
    return CIFAR[scale].jobs_with_l2(recipes)


_CNN_SIZES: dict[Scale, RecipeChanges] = {
    "full": {"data": DataSpec(name="svhn", validation=0.002, augment="none")},
    "reduced": {"data": DataSpec(augment="none"), "epochs": 10, "batch_size": 32},
    "smoke": {},
}


def _cnns(scale: Scale) -> dict[str, Recipe]:
    """50 epochs of SGD at a constant learning rate of 0.01 with batches of 128.

    The baseline has weight decay 0.01 and standardizes each image; its pixels are clipped
    to [-1, 1], as in Figure 12, to which the paper refers. The loss is not weighted by the
    frequency of the classes, as the paper's is; images are in colour, though its Table 15
    has one channel. Where not full: CIFAR-10, 4,000 images, 10 epochs.
    """
    base = recipe(scale, "cnn", epochs=50).replace(
        model=ModelSpec(name="cnn_cleverhans"),
        optimizer=OptimizerSpec(lr=0.01, momentum=0, weight_decay=0),
        evaluation=EvaluationSpec(
            conditions=("clean",), weights="last", threat=EvaluationThreatSpec(eps=())
        ),
    )
    base = base.replace(**_CNN_SIZES[scale])
    baseline = base.replace(
        model=ModelSpec(standardize="per_image"),
        optimizer=OptimizerSpec(weight_decay=0.01),
        threat=ThreatSpec(bounds=(-1, 1)),
    )
    return {"No norm": baseline, "BN": base.replace(norm=NormSpec(name="batch"))}


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
        Claim(
            "after 100 steps it is surer of its fooling images",
            (more(("BN", "final margin"), ("No norm", "final margin")),),
        ),
    ),
    shown=("fooling_images",),
)
def figure14(scale: Scale) -> Sequence[Job]:
    """From noise, up to 100 steps of length 0.2 towards each class, as Figure 12.

    The paper compares by eye, and gives "about 90%" for both clean accuracies. The start is
    read as in Figure 12.
    """
    return fooling_jobs(scale, _cnns(scale))


@artefact(
    "galloway2019/figure15",
    "Every class of SVHN turned into every other",
    claims=(
        Claim(
            "the batch-normalized network is turned by smaller changes",
            (more(("No norm", "L2 distance"), ("BN", "L2 distance")),),
        ),
        Claim(
            "after 100 steps it is surer of the targets",
            (more(("BN", "final margin"), ("No norm", "final margin")),),
        ),
    ),
    shown=("source_target",),
)
def figure15(scale: Scale) -> Sequence[Job]:
    """BIM-l2 from an image of each class, until the target has a margin of 90%.

    At most 100 steps of length 0.2, which the paper does not give. It compares by eye. It
    stops all images together, where the baseline's mean margin is 90%; here each image
    stops at its own, and "final margin" is that after all 100 steps. It has a random image
    of each class, here the first of the test images. The baseline's images are changed
    behind the standardization, as in Figure 12; lengths are in pixels.
    """
    numbers = {
        "clean": CLEAN,
        "margin": AnswerNumber("source_target", "mean margin"),
        "L2 distance": AnswerNumber("source_target", "mean L2 distance"),
        "final margin": AnswerNumber("source_target", "final margin"),
    }
    steps: dict[str, object] = {"steps": 5} if scale == "smoke" else {}
    return [
        Job(
            row,
            recipe,
            numbers,
            {"source_target": {**steps, "space": space}},
            samples=20 if scale == "smoke" else 200,
        )
        for (row, recipe), space in zip(
            _cnns(scale).items(), ("normalized", "pixels"), strict=True
        )
    ]
