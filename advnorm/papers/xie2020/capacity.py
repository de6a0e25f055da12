"""Depth (section 5) and batch size (appendix B.3) of adversarial training."""

from collections.abc import Sequence
from typing import Unpack

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, more, rising, within
from advnorm.papers.numbers import CLEAN as CLEAN_ACCURACY
from advnorm.papers.xie2020.setting import (
    ADVERSARIAL,
    BATCHES,
    CLEAN,
    NEEDS,
    job,
    point,
    recipe,
)
from advnorm.papers.xie2020.table import BATCHES as BY_BATCH
from advnorm.papers.xie2020.table import DEPTHS, STRATEGIES
from advnorm.recipe import EvaluationSpec, ModelSpec, Option, Recipe, RecipeChanges
from advnorm.records import Scale

STAR = f"{ADVERSARIAL}*"
_ROBUST, _CLEAN = f"{STAR}, PGD-2000", f"{CLEAN}, clean"
_DEPTHS: dict[Scale, tuple[int, ...]] = {
    "full": (152, *DEPTHS),
    "reduced": (20, 56),
    "smoke": (20, 32),
}
_WIDTH: dict[Scale, dict[str, Option]] = {
    "reduced": {"width": 6},
    "smoke": {"width": 4},
}
_PUBLISHED = (STRATEGIES[30][STAR], *DEPTHS.values())


def deep(
    scale: Scale, strategy: str, depth: int, **changes: Unpack[RecipeChanges]
) -> Recipe:
    """Train a ResNet of so many layers, those for CIFAR at the smaller scales."""
    training = recipe(scale, strategy, **changes)
    if scale in _WIDTH:
        training = training.replace(model=ModelSpec(options=_WIDTH[scale]))
    return training.replace(model=ModelSpec(name=f"resnet{depth}"))


def _only_robustness_grows(low: int, high: int) -> tuple[Claim, Claim]:
    """Claim that depth improves robustness, but hardly the accuracy of clean training."""
    first, last = str(low), str(high)
    scales: tuple[Scale, ...] = ("full",) if low in _DEPTHS["full"] else ("reduced",)
    return (
        Claim(
            f"from ResNet-{low} to ResNet-{high} robustness grows by over a point",
            (more((_ROBUST, last), (_ROBUST, first), by=1),),
            scales,
        ),
        Claim(
            f"from ResNet-{low} to ResNet-{high} clean training gains under a point",
            (within((_CLEAN, last), (_CLEAN, first), 1),),
            scales,
        ),
    )


@artefact(
    "xie2020/figure7",
    "Adversarial training asks for deeper networks",
    columns=tuple(map(str, _DEPTHS["full"])),
    published={
        _ROBUST: tuple(line[-1] for line in _PUBLISHED),
        _CLEAN: (78.9, None, 79.4, None, None),
    },
    claims=(
        *_only_robustness_grows(152, 338),
        *_only_robustness_grows(20, 56),
        Claim(
            "robustness grows with every step of depth, up to ResNet-638",
            rising(_ROBUST, tuple(map(str, _DEPTHS["full"]))),
            scales=("full",),
        ),
        Claim(
            "from ResNet-200 on clean training gains little (asked for: under a point "
            "up to ResNet-638)",
            (within((_CLEAN, "638"), (_CLEAN, "200"), 1),),
            scales=("full",),
        ),
    ),
    x="depth",
    y="accuracy, %",
    needs=NEEDS,
)
def figure7(scale: Scale) -> Sequence[Job]:
    """Train ResNet-152 to 638 on adversarial images (*) and on clean ones.

    The plans of the deeper networks are not in the paper: ours lengthen the third stage.
    Of the clean curve the text has only that ResNet-338 gains 0.5 points, and that gains
    are marginal from ResNet-200 on. At reduced, ResNet-20 and 56 for CIFAR of 6, 12 and 24
    channels.
    """
    plain = EvaluationSpec(conditions=("clean",))
    robust = "PGD-20" if scale == "smoke" else "PGD-2000"
    jobs = []
    for depth in _DEPTHS[scale]:
        training, clean = (
            deep(scale, STAR, depth),
            deep(scale, CLEAN, depth, evaluation=plain),
        )
        jobs.append(point(scale, f"{STAR}, {robust}", str(depth), training))
        jobs.append(Job(_CLEAN, clean, {str(depth): CLEAN_ACCURACY}))
    return jobs


@artefact(
    "xie2020/table6",
    "Robustness by batch size",
    columns=("clean", "PGD-2000"),
    published={
        str(size): (line[0], line[-1])
        for size, line in sorted({**BY_BATCH, 4096: STRATEGIES[30][STAR]}.items())
    },
    claims=(
        Claim(
            "half and a quarter of the default batch are better (a point in the paper)",
            tuple(
                more((size, "PGD-2000"), ("4096", "PGD-2000")) for size in ("2048", "1024")
            ),
        ),
        Claim(
            "an eighth and twice of it are slightly worse (by less than a point)",
            tuple(
                part
                for size in ("512", "8192")
                for part in (
                    more(("4096", "PGD-2000"), (size, "PGD-2000")),
                    within(("4096", "PGD-2000"), (size, "PGD-2000"), 1),
                )
            ),
        ),
        Claim(
            "half of the default batch is the best",
            tuple(
                more(("2048", "PGD-2000"), (size, "PGD-2000"))
                for size in ("512", "1024", "4096", "8192")
            ),
        ),
    ),
    needs=NEEDS,
)
def table6(scale: Scale) -> Sequence[Job]:
    """Train on adversarial images (*) in mini-batches of 512 to 8,192.

    The rate follows the batch size, as in the paper's pipeline. At full 32 images are
    normalized together in all sizes; how many they are in the paper is not stated. At
    reduced, 100 images stand for 4,096, and 12 to 200 for the others. Clean accuracies are
    of Table 7.
    """
    sizes = (2048, 4096) if scale == "smoke" else [n for n in BATCHES[scale] if n != 1536]
    return [job(scale, str(size), recipe(scale, STAR, batch=size)) for size in sizes]
