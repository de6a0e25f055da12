"""The setting that all of xie2020 shares (section 3): recipes, strategies, accuracies."""

from collections.abc import Sequence
from typing import Unpack

from advnorm.papers.artefact import Job
from advnorm.papers.numbers import ResultNumber
from advnorm.recipe import (
    AttackSpec,
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    NormSpec,
    ObjectiveSpec,
    OptimizerSpec,
    Piecewise,
    Recipe,
    RecipeChanges,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.records import Scale

NEEDS = "ImageNet (ILSVRC 2012): apply at image-net.org; where it goes: docs/how-to/data.md"

CLEAN = "0% adv + 100% clean"
ADVERSARIAL = "100% adv + 0% clean"
MIXED = "100% adv + 100% clean"
ALP = f"{MIXED}, ALP"
MBN = f"MBN_adv, {MIXED}"
MBN_ALP = f"MBN_adv, {ALP}"
GN = f"GN, {MIXED}"

_MIXED = ObjectiveSpec(name="mixed", gamma=0.5)
_PAIRED = ObjectiveSpec(name="alp", gamma=0.5)
_STRATEGIES: dict[str, RecipeChanges] = {
    CLEAN: {"objective": ObjectiveSpec(name="standard")},
    ADVERSARIAL: {"objective": ObjectiveSpec(name="pgd")},
    MIXED: {"objective": _MIXED},
    ALP: {"objective": _PAIRED},
    MBN: {"objective": _MIXED, "norm": NormSpec(name="mixture")},
    MBN_ALP: {"objective": _PAIRED, "norm": NormSpec(name="mixture")},
    GN: {"objective": _MIXED, "norm": NormSpec(name="group")},
}
"""Each way to train, as changes of a recipe."""

ATTACKS: dict[Scale, dict[int, tuple[int, float]]] = {
    "full": {5: (5, 4 / 255), 10: (10, 2 / 255), 20: (20, 1 / 255), 30: (30, 1 / 255)},
    "reduced": {5: (1, 16 / 255), 10: (2, 8 / 255), 20: (3, 6 / 255), 30: (5, 4 / 255)},
    "smoke": {5: (1, 16 / 255), 10: (1, 16 / 255), 20: (2, 8 / 255), 30: (2, 8 / 255)},
}
"""Steps and step size that stand for the paper's training attacks (its footnote 6)."""

BATCHES: dict[Scale, dict[int, int]] = {
    "full": {size: size for size in (512, 1024, 1536, 2048, 4096, 8192)},
    "reduced": {512: 12, 1024: 25, 1536: 38, 2048: 50, 4096: 100, 8192: 200},
    "smoke": {512: 10, 1024: 20, 1536: 20, 2048: 20, 4096: 25, 8192: 50},
}
"""Batch sizes that stand for the paper's."""
_TOGETHER = 32
"""Images that are normalized together at full: those of one GPU in the paper's pipeline."""

_EPS = 16 / 255
_TESTS: dict[Scale, tuple[str, ...]] = {
    "full": ("pgd-10+random+ratio=1", "pgd-10..2000+random+last+step=1/255"),
    "reduced": ("pgd-10..200+random+step=1/255",),
    "smoke": ("pgd-10..20+random+step=1/255",),
}
"""The curve of PGD, and before it attacks whose steps are longer than the curve's."""
_LINE = EvaluationSpec(conditions=("clean", "pgd-10..2000+random+step=1/255"), samples=300)
"""How Figures 2 and 3 are tested at reduced: over all steps, on fewer images."""
STEPS = (10, 20, 50, 100, 200, 500, 1000, 2000)
"""Where the curves of PGD are read; at smoke the first two."""

_SIZES: dict[Scale, RecipeChanges] = {
    "full": {
        "data": DataSpec(
            name="imagenet", validation=0.001, augment="flip", label_smoothing=0.1
        ),
        "model": ModelSpec(name="resnet152", options={"start": "goyal"}),
        "epochs": 110,
    },
    "reduced": {
        "data": DataSpec(name="cifar10", size=16, train=20_000),
        "model": ModelSpec(name="cnn_small"),
        "epochs": 20,
        "evaluation": EvaluationSpec(samples=2000),
    },
    "smoke": {
        "data": DataSpec(train=100),
        "model": ModelSpec(name="resnet20", options={"width": 4}),
        "epochs": 2,
        "evaluation": EvaluationSpec(samples=10),
    },
}
_DROPS: dict[Scale, tuple[int, ...]] = {
    "full": (35, 70, 95),
    "reduced": (10, 16),
    "smoke": (1,),
}
"""Epochs after which the learning rate is divided by 10."""
FROZEN: dict[Scale, int] = {"full": 10, "reduced": 2, "smoke": 1}
"""Last epochs with running statistics, marked ``*``."""


def recipe(
    scale: Scale,
    strategy: str,
    *,
    steps: int = 30,
    batch: int = 4096,
    **changes: Unpack[RecipeChanges],
) -> Recipe:
    """Return the recipe of a strategy by the paper's name, with or without its star.

    Full: ResNet-152 on ImageNet, targeted PGD-30 of steps of 1/255 in 16/255, started at
    the clean image with probability 0.2, running statistics in the attack; 110 epochs,
    the rate divided by 10 after 35, 70 and 95 of them, mini-batches of 4,096. The paper
    states an initial rate of 0.1 and a public pipeline (facebookresearch/ImageNet-
    Adversarial-Training), from which the rest is taken: Nesterov momentum 0.9, weight
    decay 1e-4 on weights alone, and over 5 epochs a rise of the rate to 0.1 for each 256
    images of a batch, label smoothing of 0.1, and a last gamma of 0 in each block. PGD-10
    is tested in steps of 1.6/255, since there a step is eps / 10 at least. As on each of
    its 128 GPUs, 32 images are normalized by themselves, whatever the ranks here: a rank's
    share of a batch passes in such parts, one after the other (``together``), of which the
    last moves the running statistics, as one GPU does, once a step.

    Otherwise than in that pipeline: no changes of colour and no cubic interpolation; inputs
    are standardized by the data's moments, there scaled to [-1, 1]; each image has its own
    chance to start clean, there all of a GPU together; and 0.1% of the training images are
    held out for validation.

    Reduced: sridhar2021's small CNN on 20,000 images of CIFAR-10 at 16x16, same threat,
    20 epochs, the rate divided by 10 after 10 and 16, PGD-5 in training. PGD-200 on 2,000
    test images stands for PGD-2000; Figures 2 and 3 take all 2,000 steps on 300 of them.
    """
    name, star = strategy.removesuffix("*"), strategy.endswith("*")
    count, size = ATTACKS[scale][steps]
    rows = BATCHES[scale][batch]
    base = Recipe(
        name="xie2020",
        threat=ThreatSpec(eps=_EPS),
        attack=AttackSpec(steps=count, step_size=size, target="random", clean_start=0.2),
        optimizer=_sgd(scale, rows),
        batch_size=rows,
        validation=ValidationSpec(every=1000, samples=10, steps=1),
        evaluation=EvaluationSpec(
            conditions=("clean", *_TESTS[scale]),
            weights="last",
            threat=EvaluationThreatSpec(eps=(_EPS,)),
        ),
    )
    base = base.replace(**_SIZES[scale]).replace(**_STRATEGIES[name])
    if star:
        base = base.replace(norm=NormSpec(freeze_epochs=FROZEN[scale]))
    return base.replace(**changes)


def _sgd(scale: Scale, rows: int) -> OptimizerSpec:
    """Return SGD: a rate of 0.1 for each 256 images of a batch, at reduced 0.05 for 100."""
    full = scale == "full"
    top = 0.1 * rows / 256 if full else 0.05 * rows / 100
    return OptimizerSpec(
        name="sgd",
        lr=top,
        schedule=Piecewise(
            at=_DROPS[scale], warmup=5 if full else 0, start=min(1.0, 0.1 / top)
        ),
        nesterov=True,
        weight_decay=1e-4,
        decay_norms=False,
        together=_TOGETHER if full else None,
    )


def last(scale: Scale) -> str:
    """Return the column of the most steps: PGD-2000, at smoke PGD-20."""
    return f"PGD-{_counts(scale, STEPS)[-1]}"


def small_radius(training: Recipe) -> Recipe:
    """Return a recipe at eps 8, one of the exceptions that section 4.2 names."""
    half = _EPS / 2
    return training.replace(
        threat=ThreatSpec(eps=half),
        evaluation=EvaluationSpec(threat=EvaluationThreatSpec(eps=(half,))),
    )


def job(scale: Scale, row: str, training: Recipe, counts: Sequence[int] = ()) -> Job:
    """Return a row: clean accuracy, and under PGD after these steps, else after all."""
    numbers = {"clean": ResultNumber("clean", branch=_branch(training))}
    for count in _counts(scale, counts) or _counts(scale, STEPS)[-1:]:
        numbers[f"PGD-{count}"] = _number(training, count)
    return Job(row, training, numbers)


def line(scale: Scale, row: str, training: Recipe) -> Job:
    """Return a line of a figure: accuracy over the steps of PGD."""
    if scale == "reduced":
        training = training.replace(evaluation=_LINE)
    counts = STEPS if scale == "reduced" else _counts(scale, STEPS)
    return Job(row, training, {str(count): _number(training, count) for count in counts})


def point(scale: Scale, row: str, column: str, training: Recipe) -> Job:
    """Return one number: the accuracy under the most steps of PGD."""
    return Job(row, training, {column: _number(training, _counts(scale, STEPS)[-1])})


def _counts(scale: Scale, counts: Sequence[int]) -> list[int]:
    """Return the steps that have a column: at reduced the last stands for PGD-200."""
    if scale == "reduced":
        return [count for count in counts if count <= 100 or count == STEPS[-1]]
    return [count for count in counts if scale != "smoke" or count <= 20]


def _number(training: Recipe, count: int) -> ResultNumber:
    """Return the accuracy after so many steps: of an own attack, or on the curve."""
    *others, curve = training.evaluation.conditions
    own = next((name for name in others if name.startswith(f"pgd-{count}+")), None)
    longest = int(curve.partition("..")[2].partition("+")[0])
    steps = None if own else min(count, longest)
    (eps,) = training.evaluation.threat.eps
    return ResultNumber(own or curve, eps=eps, branch=_branch(training), steps=steps)


def _branch(training: Recipe) -> str | None:
    return training.evaluation.branch if training.norm.name == "mixture" else None
