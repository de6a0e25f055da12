"""How sridhar2021 trains its CNNs (appendix B): PGD-AT and certified, with and without BN.

The text standardizes the images of CIFAR-10 and does not speak of those of MNIST: these
are not standardized here, and rows that are stand beside some of them. What it leaves open,
and what is chosen: MNIST has no validation set of its own, so a tenth of the training
images is held out there too; the attack of PGD-AT sees the running statistics; the robust
accuracy that chooses the epoch is that of PGD-10, or the verified one, at the radius of the
tests.

``reduced``: narrow CNNs (on MNIST of 21, 32 and 52 thousand parameters). PGD-AT: 3,000
images of MNIST, standardized, or 4,000 of CIFAR-10 at 16x16 (flipped, not cropped), batches
of 50, 500 test images. IBP: all of MNIST, or CIFAR-10 as for PGD-AT in batches of 25. Runs
of Figure 1 are monitored in the tables too, so that they are trained once.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from advnorm.numbers import parse_number
from advnorm.papers.claims import Gain, Part, more
from advnorm.papers.numbers import ResultNumber
from advnorm.recipe import (
    AttackSpec,
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    MonitorSpec,
    NormSpec,
    ObjectiveSpec,
    OptimizerSpec,
    Piecewise,
    Ramp,
    Recipe,
    RecipeChanges,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.records import Scale

Data = Literal["MNIST", "CIFAR-10"]
Size = Literal["SM", "MD", "LG"]
MODELS: dict[Size, str] = {"SM": "cnn_small", "MD": "cnn_medium", "LG": "cnn_large"}
WIDTHS: dict[Scale, dict[Data, tuple[int, int, int]]] = {
    "full": {"MNIST": (16, 32, 64), "CIFAR-10": (16, 32, 64)},
    "reduced": {"MNIST": (4, 6, 4), "CIFAR-10": (4, 6, 8)},
    "smoke": {"MNIST": (2, 2, 2), "CIFAR-10": (2, 2, 2)},
}
"""Of the small, medium and large CNN."""


class Budget(NamedTuple):
    """The radii of training and of the tests, as the paper writes them."""

    data: Data
    train: str
    test: str
    step: str = ""
    """Step size of PGD-AT."""

    @property
    def name(self) -> str:
        """As it heads a row."""
        return f"{self.data} {self.train}"

    @property
    def train_eps(self) -> float:
        """Radius of training."""
        return parse_number(self.train)

    @property
    def test_eps(self) -> float:
        """Radius of the tests."""
        return parse_number(self.test)

    @property
    def step_size(self) -> float:
        """Step size of PGD-AT."""
        return parse_number(self.step)

    def number(self, condition: str) -> ResultNumber:
        """Return the accuracy under a condition at the radius of the tests."""
        return ResultNumber(condition, eps=self.test_eps)


def gain(row: str, column: str) -> Gain:
    """Return a number with and without batch norm."""
    return (f"{row}, BN", column), (row, column)


def improves(rows: Sequence[str], columns: Sequence[str]) -> tuple[Part, ...]:
    """Claim that batch norm improves each number."""
    return tuple(more(*gain(row, column)) for row in rows for column in columns)


MNIST = (
    Budget("MNIST", "0.2", "0.1", "0.01"),
    Budget("MNIST", "0.3", "0.2", "0.02"),
    Budget("MNIST", "0.4", "0.3", "0.02"),
)
CIFAR = (
    Budget("CIFAR-10", "8.8/255", "8/255", "2/255"),
    Budget("CIFAR-10", "11/255", "10/255", "3/255"),
    Budget("CIFAR-10", "17.6/255", "16/255", "4/255"),
)


def strongest_evaluation(scale: Scale, attack: str) -> EvaluationSpec:
    """Return the evaluation under the strongest attack, at reduced on 150 test images."""
    if scale == "reduced":
        return EvaluationSpec(conditions=(attack,), samples=150)
    return EvaluationSpec(conditions=(attack,))


def pgd_at(
    scale: Scale,
    budget: Budget,
    *,
    norm: str,
    size: Size = "LG",
    monitored: bool = False,
    rising: bool = True,
) -> Recipe:
    """Train on adversarial images alone (B.2): Adam, rate 1e-3, batches of 100.

    MNIST: 50 epochs, rate divided by 10 after 30 and 40, PGD-40; CIFAR-10: 80 epochs, 44
    and 66, PGD-10. ``reduced``: 6 and 8 epochs, rate 2e-3, PGD-5 in steps of eps / 2, and
    eps rises over the first third of the epochs: without that (``rising=False``), these few
    steps leave networks without batch norm at chance.
    """
    mnist, full = budget.data == "MNIST", scale == "full"
    epochs = _EPOCHS[scale, budget.data]
    recipe = _common(scale, budget, size, norm, monitored=monitored).replace(
        name="sridhar2021.pgd",
        objective=ObjectiveSpec(name="pgd"),
        optimizer=OptimizerSpec(
            name="adam",
            lr=1e-3 if full else 2e-3,
            schedule=Piecewise.at_shares(epochs, (0.6, 0.8) if mnist else (0.55, 0.825)),
        ),
        epochs=epochs,
    )
    if full:
        steps = 40 if mnist else 10
        return recipe.replace(attack=AttackSpec(steps=steps, step_size=budget.step_size))
    recipe = recipe.replace(attack=AttackSpec(steps=5))
    if not rising:
        return recipe
    third = float(f"{epochs / 3:.4g}")  # four digits, as in the kept runs
    return recipe.replace(threat=ThreatSpec(schedule=Ramp(last=third)))


def certified(
    scale: Scale,
    budget: Budget,
    *,
    norm: str,
    size: Size = "LG",
    crown: bool = False,
    monitored: bool = False,
    standardized: bool = False,
) -> Recipe:
    """Train with IBP or CROWN-IBP (B.3): Adam, rate 5e-4, batches of 100, 200 epochs.

    The first 10 epochs are clean; until the 60th, eps rises and kappa falls to 1/2 (and
    CROWN-IBP's beta to 0, as in Zhang et al.); the rate falls tenfold after 130 and 190.
    ``reduced``: all of MNIST for 30 epochs at rate 1e-3, the schedules scaled with the
    epochs; CIFAR-10 for 12 epochs at rate 2e-3, in batches of 25, where the ramp takes half
    of them and the rate falls after 9 and 11. ``standardized`` is of images of MNIST.
    """
    epochs, full = _EPOCHS[scale, f"IBP, {budget.data}"], scale == "full"
    short = budget.data == "CIFAR-10" and not full
    first, last = epochs / 20, epochs * (0.5 if short else 0.3)
    recipe = _common(scale, budget, size, norm, monitored=monitored).replace(
        name="sridhar2021.certified",
        objective=ObjectiveSpec(
            name="ibp",
            kappa=1,
            kappa_schedule=Ramp(first=first, last=last, start=1, stop=0.5),
        ),
        threat=ThreatSpec(schedule=Ramp(first=first, last=last)),
        optimizer=OptimizerSpec(
            name="adam",
            lr=5e-4 if full else 2e-3 if short else 1e-3,
            schedule=Piecewise.at_shares(epochs, (0.75, 0.92) if short else (0.65, 0.95)),
        ),
        epochs=epochs,
        validation=ValidationSpec(robust="ibp"),
    )
    if scale == "reduced":
        recipe = recipe.replace(**_REDUCED_IBP[budget.data])
    if budget.data == "MNIST":
        recipe = recipe.replace(
            model=ModelSpec(standardize="data" if standardized else "none")
        )
    if not crown:
        return recipe
    fall = Ramp(first=first, last=last, start=1, stop=0)
    return recipe.replace(
        objective=ObjectiveSpec(name="crown_ibp", beta=1, beta_schedule=fall)
    )


_EPOCHS = {
    ("full", "MNIST"): 50,
    ("full", "CIFAR-10"): 80,
    ("full", "IBP, MNIST"): 200,
    ("full", "IBP, CIFAR-10"): 200,
    ("reduced", "MNIST"): 6,
    ("reduced", "CIFAR-10"): 8,
    ("reduced", "IBP, MNIST"): 30,
    ("reduced", "IBP, CIFAR-10"): 12,
    ("smoke", "MNIST"): 1,
    ("smoke", "CIFAR-10"): 1,
    ("smoke", "IBP, MNIST"): 2,
    ("smoke", "IBP, CIFAR-10"): 2,
}
_DATA: dict[tuple[Scale, Data], DataSpec] = {
    ("full", "MNIST"): DataSpec(name="mnist"),
    ("full", "CIFAR-10"): DataSpec(name="cifar10", augment="crop_flip"),
    ("reduced", "MNIST"): DataSpec(name="mnist", train=3000, test=500),
    ("reduced", "CIFAR-10"): DataSpec(
        name="cifar10", size=16, augment="flip", train=4000, test=500
    ),
    ("smoke", "MNIST"): DataSpec(size=16, train=60, test=20),
    ("smoke", "CIFAR-10"): DataSpec(size=16, augment="crop_flip", train=60, test=20),
}
_BATCH: dict[Scale, int] = {"full": 100, "reduced": 50, "smoke": 20}
_VALIDATION: dict[Scale, ValidationSpec] = {
    "full": ValidationSpec(samples=None),
    "reduced": ValidationSpec(every=2, samples=200),
    "smoke": ValidationSpec(every=100, samples=10, steps=1),
}
_MONITOR: dict[Scale, MonitorSpec] = {
    "full": MonitorSpec(every=10),
    "reduced": MonitorSpec(every=10, hessian_steps=10, hessian_samples=25),
    "smoke": MonitorSpec(every=1, hessian_steps=3),
}
"""How often Figure 1 measures, and the cost of its Hessian."""
_REDUCED_IBP: dict[Data, RecipeChanges] = {
    "MNIST": {
        "data": DataSpec(name="mnist"),
        "batch_size": 100,
        "validation": ValidationSpec(every=5, samples=None),
        "monitor": MonitorSpec(every=200),
    },
    "CIFAR-10": {"batch_size": 25, "monitor": MonitorSpec(every=40)},
}
"""What certified training at reduced has of its own."""


def _common(
    scale: Scale, budget: Budget, size: Size, norm: str, *, monitored: bool
) -> Recipe:
    """Return what PGD-AT and certified training share."""
    width = dict(zip(MODELS, WIDTHS[scale][budget.data], strict=True))[size]
    recipe = Recipe(
        data=_DATA[scale, budget.data],
        model=ModelSpec(name=MODELS[size], options={"width": width}),
        norm=NormSpec(name=norm),
        threat=ThreatSpec(eps=budget.train_eps),
        evaluation=EvaluationSpec(threat=EvaluationThreatSpec(eps=(budget.test_eps,))),
        batch_size=_BATCH[scale],
        validation=_VALIDATION[scale],
    ).replace(validation=ValidationSpec(eps=budget.test_eps))
    if scale == "full" and budget.data == "MNIST":
        recipe = recipe.replace(model=ModelSpec(standardize="none"))
    if not monitored:
        return recipe
    questions = MonitorSpec(questions=("gradient_norm", "hessian", "moments"))
    return recipe.replace(monitor=_MONITOR[scale]).replace(monitor=questions)
