"""VGGs and WideResNets on CIFAR-10 with and without batch norm (section 4, E.1)."""

from collections.abc import Sequence
from dataclasses import replace

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, ahead, more
from advnorm.papers.galloway2019.nets import CIFAR, L2, LINF, vgg, wide
from advnorm.papers.numbers import CLEAN, DifferenceNumber, EpochNumber
from advnorm.recipe import EvaluationSpec, OptimizerSpec, Piecewise, Recipe, updated
from advnorm.records import Scale

_COLUMNS = ("Clean", "Noise", LINF, L2, "10.1 Clean", "10.1 Noise")
_PIXELS = 3 * 32**2
_NEW_IMAGES = "cifar10.1"


def _rows(scale: Scale, recipes: dict[str, Recipe]) -> list[Job]:
    """Return rows with PGD-l2 and, at full, CIFAR-10.1 and the generalization gap.

    The gap is the accuracy of the last epoch on its training images, which are cropped and
    mirrored, less the accuracy on test images.
    """
    sizes = CIFAR[scale]
    if scale != "full":
        return sizes.jobs_with_l2(recipes)
    new_images = {
        f"10.1 {column}": replace(number, data=_NEW_IMAGES)
        for column, number in sizes.numbers(pixels=_PIXELS).items()
    }
    gap = DifferenceNumber(EpochNumber("train"), CLEAN)
    evaluations = [EvaluationSpec(), sizes.l2_evaluation(_PIXELS)]
    return [
        sizes.job(
            row,
            recipe,
            pixels=_PIXELS,
            extra={**new_images, "Gap": gap},
            evaluations=[
                updated(evaluation, EvaluationSpec(data=_NEW_IMAGES))
                for evaluation in evaluations
            ],
        )
        for row, recipe in recipes.items()
    ]


_WIDE = {
    "Fixup": ((94.6, 0.1), (69.1, 1.1), (20.3, 0.3), (9.4, 0.2), (87.5, 0.3), (67.8, 0.9)),
    "batch norm": (
        *((95.9, 0.1), (57.6, 1.5), (14.9, 0.6), (8.3, 0.3)),
        *((89.6, 0.2), (58.3, 1.2)),
    ),
}


_PAIRS = (("VGG8", "VGG8, batch norm"), ("WRN, Fixup", "WRN, batch norm"))


@artefact(
    "galloway2019/table2",
    "VGG8 and WideResNet-28-10 on CIFAR-10, with and without batch norm",
    columns=_COLUMNS,
    published={
        "VGG8": (
            *((87.9, 0.1), (78.9, 0.6), (52.9, 0.6), (65.6, 0.3)),
            *((75.3, 0.2), (66, 1)),
        ),
        "VGG8, batch norm": (
            *((88.7, 0.1), (73, 1), (35.7, 0.3), (59.7, 0.3)),
            *((77.3, 0.2), (60, 2)),
        ),
        **{f"WRN, {row}": numbers for row, numbers in _WIDE.items()},
    },
    claims=(
        Claim(
            "batch norm raises the clean accuracy of VGG8 and lowers that under PGD",
            (
                more(("VGG8, batch norm", "Clean"), ("VGG8", "Clean")),
                more(("VGG8", LINF), ("VGG8, batch norm", LINF)),
                more(("VGG8", L2), ("VGG8, batch norm", L2)),
            ),
        ),
        Claim(
            "batch norm lowers the accuracy of VGG8 under noise",
            (more(("VGG8", "Noise"), ("VGG8, batch norm", "Noise")),),
        ),
        Claim(
            "WideResNet with Fixup is more robust to noise and PGD than with batch norm",
            ahead("WRN, Fixup", "WRN, batch norm", ("Noise", LINF, L2)),
        ),
        Claim(
            "VGG8 without batch norm is more robust to noise than both WideResNets (78.9 "
            "against 69.1 in the paper)",
            tuple(
                more(("VGG8", "Noise"), (f"WRN, {name}", "Noise"))
                for name in ("Fixup", "batch norm")
            ),
        ),
        Claim(
            "on CIFAR-10.1 too batch norm costs accuracy under noise",
            tuple(
                more((plain, "10.1 Noise"), (normed, "10.1 Noise"))
                for plain, normed in _PAIRS
            ),
            scales=("full",),
        ),
        Claim(
            "on clean images of CIFAR-10.1 batch norm is better (2.0 points for VGG8)",
            tuple(
                more((normed, "10.1 Clean"), (plain, "10.1 Clean"))
                for plain, normed in _PAIRS
            ),
            scales=("full",),
        ),
        Claim(
            "on CIFAR-10.1 too batch norm costs VGG8 accuracy under PGD (15 points for "
            "linf and 3.4 for l2 in the paper)",
            tuple(
                more(("VGG8", f"10.1 {norm}"), ("VGG8, batch norm", f"10.1 {norm}"))
                for norm in (LINF, L2)
            ),
            scales=("full",),
        ),
        Claim(
            "batch norm makes the gap between training and test accuracy of VGG8 smaller "
            "(1.1 points in the paper)",
            (more(("VGG8", "Gap"), ("VGG8, batch norm", "Gap")),),
            scales=("full",),
        ),
    ),
)
def table2(scale: Scale) -> Sequence[Job]:
    """VGG8 at a learning rate of 0.01 and WideResNet-28-10, 150 epochs, 3 to 5 seeds.

    The paper's l2 accuracy of VGG8 is above that of linf though its l2 ball holds the linf
    ball: it does not print the l2 step, which is eps / 10 here. Of PGD on CIFAR-10.1 its
    text has the drops alone. Published noise has the digits of Table 11 and appendix E.1,
    one more than Table 2 prints.
    """
    recipes = {
        "VGG8": vgg(scale, 8, norm=False),
        "VGG8, batch norm": vgg(scale, 8, norm=True),
    }
    for norm, name in ((False, "Fixup"), (True, "batch norm")):
        recipes[f"WRN, {name}"] = wide(scale, norm=norm)
    return _rows(scale, recipes)


@artefact(
    "galloway2019/table11",
    "WideResNet-28-10 on CIFAR-10 and CIFAR-10.1, Fixup against batch norm",
    columns=_COLUMNS,
    published=_WIDE,
    claims=(
        Claim(
            "Fixup is better under noise and PGD (11.6, 5.4 and 1.1 points in the paper)",
            ahead("Fixup", "batch norm", ("Noise", LINF, L2)),
        ),
        Claim(
            "on CIFAR-10.1 too Fixup is better under noise (9.5 points in the paper)",
            (more(("Fixup", "10.1 Noise"), ("batch norm", "10.1 Noise")),),
            scales=("full",),
        ),
        Claim(
            "batch norm is better on clean images",
            (more(("batch norm", "Clean"), ("Fixup", "Clean")),),
        ),
    ),
)
def table11(scale: Scale) -> Sequence[Job]:
    """Show the WideResNets of Table 2 under the heading of a large learning rate."""
    return _rows(
        scale, {"Fixup": wide(scale, norm=False), "batch norm": wide(scale, norm=True)}
    )


def large(scale: Scale, depth: int, *, norm: bool) -> Recipe:
    """350 epochs from a learning rate of 0.1, divided by 10 at epochs 150 and 250.

    Reduced: 15 epochs from 0.02 (batches are four times smaller), drops at 7 and 12.
    """
    lr, at = (0.1, (150, 250)) if scale == "full" else (0.02, (7, 12))
    return vgg(scale, depth, norm=norm, epochs=350).replace(
        optimizer=OptimizerSpec(lr=lr, schedule=Piecewise(at=at))
    )


@artefact(
    "galloway2019/table3",
    "Deeper and deeper VGGs on CIFAR-10, large initial learning rate",
    columns=("Clean", "Noise", LINF),
    published={
        "VGG8": ((89.29, 0.09), (81.7, 0.3), (55.6, 0.4)),
        "VGG8, batch norm": ((90.49, 0.01), (77, 1), (40.6, 0.6)),
        "VGG13": ((91.74, 0.02), (77.8, 0.7), (40.3, 0.7)),
        "VGG13, batch norm": ((93.0, 0.1), (67, 1), (28.5, 0.4)),
        "VGG16, batch norm": ((92.8, 0.1), (66, 2), (28.9, 0.2)),
        "VGG19, batch norm": ((92.65, 0.09), (68, 2), (30.0, 0.1)),
    },
    claims=(
        Claim(
            "batch norm costs accuracy under PGD at each depth that trains without it",
            tuple(
                more((name, LINF), (f"{name}, batch norm", LINF))
                for name in ("VGG8", "VGG13")
            ),
        ),
        Claim(
            "batch norm costs accuracy under noise at each of these depths",
            tuple(
                more((name, "Noise"), (f"{name}, batch norm", "Noise"))
                for name in ("VGG8", "VGG13")
            ),
        ),
        Claim(
            "no deeper network with batch norm is as robust as VGG8 without",
            tuple(
                more(("VGG8", LINF), (f"VGG{depth}, batch norm", LINF))
                for depth in (13, 16)
            ),
        ),
        Claim(
            "no deeper network with batch norm is as robust to noise as VGG8 without",
            tuple(
                more(("VGG8", "Noise"), (f"VGG{depth}, batch norm", "Noise"))
                for depth in (13, 16)
            ),
        ),
        Claim(
            "the deepest one is not either, under PGD and noise",
            ahead("VGG8", "VGG19, batch norm", (LINF, "Noise")),
            scales=("full",),
        ),
    ),
)
def table3(scale: Scale) -> Sequence[Job]:
    """VGG8 and 13 with and without batch norm, 16 and 19 with it, three seeds.

    Without batch norm VGGs deeper than 13 do not train, and one seed in ten of VGG13 fails;
    the paper shows seeds that did not fail. VGG19 is left out at reduced.
    """
    pairs = [(8, False), (8, True), (13, False), (13, True), (16, True)]
    pairs += [(19, True)] if scale == "full" else []
    pairs = pairs[:2] if scale == "smoke" else pairs
    return [
        CIFAR[scale].job(
            f"VGG{depth}{', batch norm' if norm else ''}", large(scale, depth, norm=norm)
        )
        for depth, norm in pairs
    ]
