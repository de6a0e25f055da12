"""Perceptrons on larger and larger images, with and without batch norm (section 5)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, above, more, within
from advnorm.papers.galloway2019.dimension import (
    DECAY,
    LOSSES,
    STEP,
    WIDTHS,
    noise,
    recipe,
    tile,
)
from advnorm.papers.numbers import CLEAN, AnswerNumber, ResultNumber
from advnorm.recipe import EvaluationSpec, ModelSpec, NormSpec, Option, Recipe
from advnorm.records import Scale

_NORM = NormSpec(name="batch", where=(0,), options={"start": "uniform"})


def _perceptron(scale: Scale, width: int, decay: float, *, norm: bool) -> Recipe:
    """Two hidden layers of half the input dimension, a batch norm in one of them.

    The paper does not say in which, nor how its weights begin. In the first, before its
    ReLU, and drawn from U(0, 1) as PyTorch did then (and as Table 1 has it, "randomly
    initialized"), the numbers of width 28 are the published ones; in the second, or from
    ones, they are not.

    The wide ones have up to 37 million weights: at full their products are of bfloat16 in
    training and attack (results are computed in float32), and the first layer uses the
    tiles.
    """
    hidden = WIDTHS[scale][width] ** 2 // 2
    options: dict[str, Option] = {"width": hidden, "depth": 2}
    if width > 28:
        options["tile"] = tile(width)
    perceptron = recipe(scale, width, decay).replace(
        model=ModelSpec(name="mlp", options=options),
        evaluation=EvaluationSpec(conditions=("clean", noise(width))),
    )
    if width > 28 and scale == "full":
        perceptron = perceptron.replace(precision="bfloat16")
    return perceptron.replace(norm=_NORM) if norm else perceptron


_COLUMNS = ("Clean", "Noise", "eps 0.1")
_BIM = AnswerNumber("attacked_loss", "attacked accuracy")


def _jobs(
    scale: Scale, widths: Sequence[int], columns: Sequence[str], *, decay: bool
) -> list[Job]:
    """Return a row for each width, without and with batch norm, all attacked alike."""
    jobs = []
    for width, norm in product(widths, (False, True)):
        perceptron = _perceptron(scale, width, DECAY[width] if decay else 0.0, norm=norm)
        attack: dict[str, object] = {"steps": 100, "step_size": STEP}
        if perceptron.precision != "float32":
            attack["precision"] = perceptron.precision
        noisy = ResultNumber(noise(width))
        numbers = {"Clean": CLEAN, "Noise": noisy, "eps 0.1": _BIM, **LOSSES}
        jobs.append(
            Job(
                f"{width}{', batch norm' if norm else ''}",
                perceptron,
                {column: numbers[column] for column in columns},
                {"attacked_loss": attack},
                samples=10_000,
            )
        )
    return jobs


_NO_DECAY = {
    "56": ((98.19, 0.04), (93.8, 0.1), (53.2, 0.7)),
    "84": ((98.27, 0.04), (94.3, 0.1), (47.6, 0.8)),
}
"""Published without batch norm and without weight decay."""


@artefact(
    "galloway2019/table6",
    "A perceptron on larger and larger images, with and without batch norm",
    columns=_COLUMNS,
    published={
        "28": ((97.95, 0.08), (93.0, 0.4), (66.7, 0.9)),
        "28, batch norm": ((97.88, 0.09), (76.6, 0.7), (22.9, 0.7)),
        "56": _NO_DECAY["56"],
        "56, batch norm": ((98.22, 0.02), (79.3, 0.6), (8.6, 0.8)),
        "84": _NO_DECAY["84"],
        "84, batch norm": ((98.28, 0.05), (80.5, 0.6), (6.1, 0.5)),
    },
    claims=(
        Claim(
            "batch norm costs about 40 points under BIM at each width (asked for: 20)",
            tuple(
                more((width, "eps 0.1"), (f"{width}, batch norm", "eps 0.1"), by=20)
                for width in ("28", "56", "84")
            ),
        ),
        Claim(
            "batch norm costs 13 to 16 points under noise at each width (asked for: 5)",
            tuple(
                more((width, "Noise"), (f"{width}, batch norm", "Noise"), by=5)
                for width in ("28", "56", "84")
            ),
        ),
        Claim(
            "vulnerability grows with the width of the image",
            tuple(
                more((f"{narrow}{norm}", "eps 0.1"), (f"{wide}{norm}", "eps 0.1"))
                for norm in ("", ", batch norm")
                for narrow, wide in pairwise(("28", "56", "84"))
            ),
        ),
        Claim(
            "from width 28 to 84 with batch norm 61 points are lost (asked for: 30)",
            (more(("28", "eps 0.1"), ("84, batch norm", "eps 0.1"), by=30),),
        ),
        Claim(
            "clean accuracy is compatible with and without batch norm (0.08 points apart "
            "at width 28; asked for: under 0.5)",
            tuple(
                within((first, "Clean"), (second, "Clean"), 0.5)
                for width in ("28", "56", "84")
                for first, second in permutations((width, f"{width}, batch norm"))
            ),
        ),
    ),
)
def table6(scale: Scale) -> Sequence[Job]:
    """Use widths 28, 56 and 84, no weight decay, and BIM of 100 steps of 1e-3."""
    return _jobs(scale, (28, 56, 84), _COLUMNS, decay=False)


@artefact(
    "galloway2019/table7",
    "The same perceptron with weight decay",
    columns=_COLUMNS,
    published={
        "56": ((97.62, 0.06), (95.93, 0.06), (87.9, 0.2)),
        "56, batch norm": ((96.23, 0.03), (90.22, 0.18), (66.2, 0.8)),
        "84": ((96.99, 0.05), (95.69, 0.09), (87.9, 0.1)),
        "84, batch norm": ((93.30, 0.09), (87.72, 0.11), (65.1, 0.5)),
        **{f"{width}, no decay": numbers for width, numbers in _NO_DECAY.items()},
    },
    claims=(
        Claim(
            "with weight decay too, batch norm lowers every accuracy",
            tuple(
                more((width, column), (f"{width}, batch norm", column))
                for width in ("56", "84")
                for column in _COLUMNS
            ),
        ),
        Claim(
            "weight decay raises accuracy under noise and attack",
            tuple(
                more((width, column), (f"{width}, no decay", column))
                for width in ("56", "84")
                for column in ("Noise", "eps 0.1")
            ),
        ),
    ),
)
def table7(scale: Scale) -> Sequence[Job]:
    """Weight decay as tuned on the linear model: 0.01 at width 56, 0.0225 at 84.

    Rows without decay are runs of Table 6. Appendix C has it that Tables 6 and 7 show
    "compatible clean accuracy irrespective of BN", but here it differs by 1.4 and 3.7
    points, and the caption says that batch norm "degrades all accuracies".
    """
    no_decay = {job.row: job for job in _jobs(scale, (56, 84), _COLUMNS, decay=False)}
    return [
        *_jobs(scale, (56, 84), _COLUMNS, decay=True),
        *(replace(no_decay[width], row=f"{width}, no decay") for width in ("56", "84")),
    ]


@artefact(
    "galloway2019/table14",
    "The perceptron's accuracy and loss, relative to width 28 without batch norm",
    columns=("Clean", "eps 0.1", "loss", "loss eps 0.1"),
    published={
        "28": ((97.95, 0.08), (66.7, 0.9), (0.0669, 0.0008), (1.06, 0.02)),
        "28, batch norm": ((0.9992, 0.0012), (0.34, 0.03), (1.06, 0.04), (3.18, 0.03)),
        "56": ((1.0025, 0.0009), (0.80, 0.02), (0.87, 0.02), (1.68, 0.03)),
        "56, batch norm": ((1.0027, 0.0008), (0.13, 0.09), (0.91, 0.03), (5.83, 0.03)),
        "84": ((1.0033, 0.0009), (0.71, 0.02), (0.86, 0.02), (2.15, 0.03)),
        "84, batch norm": ((1.0033, 0.0010), (0.09, 0.08), (0.88, 0.02), (7.34, 0.02)),
    },
    relative_to="28",
    claims=(
        Claim(
            "batch norm raises the attacked loss at each width",
            (
                above("28, batch norm", "loss eps 0.1", 1),
                *(
                    more((f"{width}, batch norm", "loss eps 0.1"), (width, "loss eps 0.1"))
                    for width in ("56", "84")
                ),
            ),
        ),
    ),
)
def table14(scale: Scale) -> Sequence[Job]:
    """Show the runs of Table 6 as ratios, with the losses."""
    return _jobs(scale, (28, 56, 84), ("Clean", "eps 0.1", *LOSSES), decay=False)
