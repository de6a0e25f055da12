"""Problems in the plane: two Gaussians (Figure 1), two circles (Figures 8 and 9)."""

from collections.abc import Sequence
from itertools import product

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, above, below, more
from advnorm.papers.galloway2019.nets import PLAIN_SGD
from advnorm.papers.numbers import AnswerNumber, EpochNumber, ResultNumber
from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    ModelSpec,
    NormSpec,
    OptimizerSpec,
    Option,
    Recipe,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.records import Scale


@artefact(
    "galloway2019/figure1",
    "Two Gaussians: batch norm tilts the boundary",
    columns=("angle",),
    published={"GD": (0.0,), "BNGD": (66.7,)},
    claims=(
        Claim("the boundary of GD is not tilted", (below("GD", "angle", 10),)),
        Claim(
            "batch norm tilts it by about 66.7 degrees",
            (above("BNGD", "angle", 56.7), below("BNGD", "angle", 76.7)),
        ),
    ),
)
def figure1(scale: Scale) -> Sequence[Job]:
    """Full-batch descent at rate 0.1 for 1,000 epochs on 1,000 points.

    One unit, ``w x + b``, on the logistic loss. The paper gives no number of points;
    docs/results/galloway-toy.md shows what it moves.
    """
    epochs = 20 if scale == "smoke" else 1000
    recipe = PLAIN_SGD.replace(
        name="galloway2019.gaussians",
        data=DataSpec(name="gaussians"),
        model=ModelSpec(name="linear", standardize="none", options={"output": "logistic"}),
        optimizer=OptimizerSpec(lr=0.1),
        batch_size=1000,
        epochs=epochs,
        threat=ThreatSpec(eps=1, bounds=(-16, 16)),
        validation=ValidationSpec(every=10000),
        evaluation=EvaluationSpec(conditions=("clean",)),
    )
    normed = recipe.replace(norm=NormSpec(name="batch", options={"affine": False}))
    rows = {"GD": (recipe, "this model"), "BNGD": (normed, "this model, tracked")}
    return [
        Job(
            row,
            recipe,
            {"angle": AnswerNumber("tilt", name)},
            {"tilt": {"constants": (1e-5,)}},
            samples=1000,
        )
        for row, (recipe, name) in rows.items()
    ]


def _circles(name: str, norm: str, lr: float, options: dict[str, Option]) -> Recipe:
    """Train a perceptron on two circles, in mini-batches of 50."""
    return PLAIN_SGD.replace(
        name=name,
        data=DataSpec(name="spheres"),
        model=ModelSpec(name="mlp", options=options, standardize="none"),
        norm=NormSpec(name=norm),
        optimizer=OptimizerSpec(lr=lr),
        batch_size=50,
        threat=ThreatSpec(eps=0.1, bounds=(-2, 2)),
    )


_BATCHES = {50: "", 16: ", batches of 16", 128: ", batches of 128"}
"""Mini-batches of Figure 8, and what their rows are called after."""


@artefact(
    "galloway2019/figure8",
    "Two mini-batches of two circles in a deep linear network at its start",
    claims=(
        Claim(
            "with batch norm, samples that are apart at the input overlap at layer 2",
            (more(("batch norm", "input"), ("batch norm", "layer 2")),),
        ),
        Claim(
            "with batch norm, classes are mixed at layer 14 (asked for: under 0.75 of "
            "neighbours of the same class, half-way to chance, in mini-batches of 16)",
            (below("batch norm, batches of 16", "layer 14", 0.75),),
        ),
        Claim(
            "they are mixed so in mini-batches of 50 and 128 too",
            (
                below("batch norm", "layer 14", 0.75),
                below("batch norm, batches of 128", "layer 14", 0.75),
            ),
        ),
        Claim(
            "with batch norm, they are mixed more at layer 14 than at layer 2",
            (more(("batch norm", "layer 2"), ("batch norm", "layer 14")),),
        ),
        Claim(
            "without batch norm they are mixed less, in mini-batches of 16, 50 and 128",
            tuple(
                more((f"no norm{batch}", "layer 14"), (f"batch norm{batch}", "layer 14"))
                for batch in _BATCHES.values()
            ),
        ),
    ),
    shown=("depth_pca",),
)
def figure8(scale: Scale) -> Sequence[Job]:
    """Fourteen linear layers of 100, two mini-batches of 16, 50 or 128, each layer by PCA.

    The paper gives neither width nor batch size, and compares by eye: here, the share
    of points whose nearest neighbour, of both mini-batches, is of their class (0.5 is
    chance). A rate of 1e-12 leaves the weights at their start, and the network has
    PyTorch's own. The same at every scale.
    """
    options: dict[str, Option] = {"width": 100, "depth": 14, "activation": "none"}
    jobs = []
    for norm, place in (("batch", 1), ("none", 0)):
        recipe = _circles("galloway2019.mixing", norm, 1e-12, options).replace(
            epochs=1,
            validation=ValidationSpec(every=10),
            evaluation=EvaluationSpec(conditions=("clean",)),
        )
        places = {"input": "input"}
        places |= {f"layer {n}": f"hidden.{3 * n - 3 + place}" for n in (2, 14)}
        numbers = {
            column: AnswerNumber("depth_pca", f"{layer}: neighbours of the same class")
            for column, layer in places.items()
        }
        row = "batch norm" if norm == "batch" else "no norm"
        questions = {"depth_pca": {"layers": 14}}
        jobs += [
            Job(f"{row}{end}", recipe, numbers, questions, 2 * batch, evaluations=())
            for batch, end in _BATCHES.items()
        ]
    return sorted(jobs, key=lambda job: job.samples != 100)


@artefact(
    "galloway2019/figure9",
    "Two circles: batch norm makes training less stable",
    columns=("training", "noise"),
    published={
        "rate 0.001": (100.0, 96.06),
        "rate 0.001, batch norm": (100.0, 94.83),
        "rate 0.01": (100.0, None),
        "rate 0.01, batch norm": (None, None),
    },
    claims=(
        Claim(
            "at rate 0.01 the network trains without batch norm and not with it",
            (
                above("rate 0.01", "training", 95),
                below("rate 0.01, batch norm", "training", 95),
            ),
        ),
        Claim(
            "at rate 0.001 the network without batch norm is more robust to noise",
            (more(("rate 0.001", "noise"), ("rate 0.001, batch norm", "noise")),),
        ),
    ),
)
def figure9(scale: Scale) -> Sequence[Job]:
    """Two hidden layers of 1,000, SGD, mini-batches of 50 of 500 points, five seeds.

    The paper's text gives no number of epochs, only that all but one of the networks fit
    the training points: 1,000 here. Noise has variance 0.005.
    """
    epochs = {"smoke": 2, "reduced": 200, "full": 1000}[scale]
    options: dict[str, Option] = {"width": 20 if scale == "smoke" else 1000, "depth": 2}
    rows = {}
    for lr, norm in product((0.001, 0.01), ("none", "batch")):
        row = f"rate {lr:g}{', batch norm' if norm == 'batch' else ''}"
        rows[row] = _circles("galloway2019.spheres", norm, lr, options).replace(
            epochs=epochs,
            validation=ValidationSpec(every=10000),
            evaluation=EvaluationSpec(conditions=("clean", "noise-0.0707")),
        )
    numbers = {"training": EpochNumber("train"), "noise": ResultNumber("noise-0.0707")}
    return [Job(row, recipe, numbers) for row, recipe in rows.items()]
