"""Unbounded examples of a LeNet-5 on MNIST (appendix J.1)."""

from collections.abc import Mapping, Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, more
from advnorm.papers.galloway2019.nets import PLAIN_SGD
from advnorm.papers.numbers import CLEAN, AnswerNumber
from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    ModelSpec,
    NormSpec,
    OptimizerSpec,
    Recipe,
    RecipeChanges,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.records import Scale

_SIZES: dict[Scale, RecipeChanges] = {
    "full": {
        "data": DataSpec(name="mnist", validation=0.002),
        "epochs": 90,
        "channels_last": True,  # faster on a CPU, and the same but for rounding
        "precision": "bfloat16",  # in training: twice as fast; tested in float32
    },
    "reduced": {
        "data": DataSpec(name="mnist", train=5000, test=1000),
        "batch_size": 20,
        "epochs": 8,
    },
    "smoke": {"data": DataSpec(size=28, train=100, test=50), "epochs": 1},
}


def models(scale: Scale) -> dict[str, Recipe]:
    """90 epochs of SGD at a learning rate of 0.01 with mini-batches of 50."""
    base = PLAIN_SGD.replace(
        name="galloway2019.lenet",
        model=ModelSpec(name="lenet5", standardize="none"),
        optimizer=OptimizerSpec(lr=0.01),
        batch_size=50,
        threat=ThreatSpec(norm="l2", eps=1),
        validation=ValidationSpec(every=1000),
        evaluation=EvaluationSpec(conditions=("clean",)),
    ).replace(**_SIZES[scale])
    decay = base.replace(optimizer=OptimizerSpec(weight_decay=0.01))
    return {
        "L2": decay,
        "BN": base.replace(norm=NormSpec(name="batch")),
        "Per-img": decay.replace(model=ModelSpec(standardize="per_image")),
    }


_FOOLING = {
    "clean": CLEAN,
    "margin": AnswerNumber("fooling_images", "mean margin"),
    "steps": AnswerNumber("fooling_images", "mean steps"),
}
_FINAL = AnswerNumber("fooling_images", "final margin")
TO_THE_END = ", all steps"


def fooling_options(scale: Scale) -> dict[str, object]:
    """Return the options of the question ``fooling_images``."""
    return {"steps": 10} if scale == "smoke" else {}


def fooling_jobs(scale: Scale, recipes: Mapping[str, Recipe]) -> list[Job]:
    """Return a row for each recipe: steps to a margin of 0.9, and the margin after all.

    Networks that standardize each image are attacked behind that: the paper clips their
    pixels to [-1, 1], as it does with standardized ones.
    """
    jobs = []
    for row, recipe in recipes.items():
        options = fooling_options(scale)
        if recipe.model.standardize == "per_image":
            options["space"] = "normalized"
        numbers = {**_FOOLING, "final margin": _FINAL}
        jobs.append(Job(row, recipe, numbers, {"fooling_images": options}))
    return jobs


_NORMALIZED = "Per-img, normalized space"


@artefact(
    "galloway2019/figure12",
    "Fooling images of three variants of LeNet-5",
    columns=("clean",),
    published={"L2": (98.0,), "BN": (99.2,), "Per-img": (98.4,)},
    claims=(
        Claim(
            "the batch-normalized model is fooled in fewer steps than the one with weight "
            "decay",
            (more(("L2", "steps"), ("BN", "steps")),),
        ),
        Claim(
            "it is fooled in fewer steps than the per-image normalized one",
            (more((_NORMALIZED, "steps"), ("BN", "steps")),),
        ),
        Claim(
            "after 100 steps the batch-normalized model is fully confident and the "
            "per-image normalized one is not saturated (asked for: a larger margin)",
            (more((f"BN{TO_THE_END}", "final margin"), (_NORMALIZED, "final margin")),),
        ),
    ),
    shown=("fooling_images",),
)
def figure12(scale: Scale) -> Sequence[Job]:
    """From noise, up to 100 steps of length 0.2 towards each class.

    Pixels of "Per-img" are clipped to [-1, 1], those of the others to [0, 1]. The start,
    "N(0, 0.1)", is read as noise of deviation 0.1; as a variance it would be 0.32. The
    paper compares by eye; here are, beside the images, the steps taken to a margin of 0.9,
    where an image stops in the first three rows, and the margin after all 100 steps, which
    the paper's text is about. Its [-1, 1] is a range of standardized pixels: the last row
    changes the images behind the standardization. In the row "Per-img" the layer is part of
    the attacked model, which rescales each step and never lets it saturate.
    """
    recipes = models(scale)
    per_image = recipes["Per-img"].replace(threat=ThreatSpec(bounds=(-1, 1)))
    stopped = {**recipes, "Per-img": per_image}
    ends = {f"{row}{TO_THE_END}": recipes[row] for row in ("L2", "BN")}
    return [
        *(
            Job(row, recipe, _FOOLING, {"fooling_images": fooling_options(scale)})
            for row, recipe in stopped.items()
        ),
        *fooling_jobs(scale, {**ends, _NORMALIZED: per_image}),
    ]


@artefact(
    "galloway2019/figure13",
    "Nearest adversarial examples (CW) of LeNet-5 with and without batch norm",
    columns=("L2 distance",),
    published={"L2": (2.89,), "BN": (0.95,)},
    claims=(
        Claim(
            "the model without batch norm needs larger changes (2.89 against 0.95 in the "
            "paper; asked for: 0.5 more)",
            (more(("L2", "L2 distance"), ("BN", "L2 distance"), by=0.5),),
        ),
    ),
    shown=("minimal_examples",),
)
def figure13(scale: Scale) -> Sequence[Job]:
    """Carlini-Wagner with confidence 4, untargeted, on correctly classified images.

    The paper allows 10,000 steps, here 1,000 for each constant.
    """
    distance = AnswerNumber("minimal_examples", "mean L2 distance")
    numbers = {"clean": CLEAN, "L2 distance": distance}
    options = {"count": 4, "steps": 20} if scale == "smoke" else {"count": 50}
    questions = {"minimal_examples": options}
    recipes = models(scale)
    return [Job(row, recipes[row], numbers, questions) for row in ("L2", "BN")]
