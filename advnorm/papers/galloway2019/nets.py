r"""Networks trained on clean images, and how they are tested (appendix B).

The paper standardizes pixels and attacks there: PGD of 20 steps of eps / 10 without a
random start, :math:`\epsilon_\infty = 0.03`, :math:`\epsilon_2 = \epsilon_\infty \sqrt{d}`,
and noise of variance 1/16. Here images stay in [0, 1] and the model standardizes, so that
lengths are multiplied by the deviation that the paper divides by: 0.2 for CIFAR-10 (its
footnote 7), 0.5 for SVHN (pixels in [-1, 1]), 0.226 for ImageNet. The network's own first
layer divides by the deviation that it measures on the training images. The paper's
clipping to 1 or 2 deviations, without effect by its own words, is that to [0, 1].

The authors' public code for Figure 4 (AngusG/bn-advex-zhang-fixup) does just that: it
divides pixels by 0.2023, 0.1994 and 0.2010, and adds noise of deviation 1/4 and PGD after
that. The paper's own rule of thumb, by which its 8/255 "should be compared to" 4/255 of
works with pixels in [0, 1], is that of SVHN's pixels in [-1, 1].
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from advnorm.papers.artefact import Job
from advnorm.papers.numbers import CLEAN, NumberSource, ResultNumber
from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    NormSpec,
    ObjectiveSpec,
    OptimizerSpec,
    Option,
    Piecewise,
    Recipe,
    RecipeChanges,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.records import Scale

_PGD = "bim-20+ratio=2"
LINF, L2 = "PGD linf", "PGD l2"


class PerturbationSizes(NamedTuple):
    """How far images are moved, in [0, 1]."""

    eps: float
    sigma: float

    @property
    def noise(self) -> str:
        """The name of the noise, which is not clipped."""
        return f"noise-{self.sigma:g}+unclipped"

    @property
    def evaluation(self) -> EvaluationSpec:
        """The evaluation on clean images, under noise and under PGD-linf."""
        return EvaluationSpec(
            conditions=("clean", self.noise, _PGD),
            threat=EvaluationThreatSpec(eps=(self.eps,)),
        )

    def numbers(self, *, pixels: int = 0) -> dict[str, ResultNumber]:
        """Return where clean accuracy, that under noise and under PGD-linf are.

        With the number of ``pixels``, also that under PGD-l2.
        """
        numbers = {
            "Clean": CLEAN,
            "Noise": ResultNumber(self.noise),
            LINF: ResultNumber(_PGD, eps=self.eps),
        }
        if pixels:
            numbers[L2] = ResultNumber(_PGD, eps=self.eps * sqrt(pixels), norm="l2")
        return numbers

    def l2_evaluation(self, pixels: int) -> EvaluationSpec:
        """Return the evaluation under PGD-l2, as a change of :attr:`evaluation`."""
        eps = self.eps * sqrt(pixels)
        return EvaluationSpec(
            conditions=(_PGD,), threat=EvaluationThreatSpec(norm="l2", eps=(eps,))
        )

    def job(
        self,
        row: str,
        recipe: Recipe,
        *,
        pixels: int = 0,
        extra: Mapping[str, NumberSource] | None = None,
        evaluations: Sequence[EvaluationSpec] = (),
    ) -> Job:
        """Return a row: clean, noise, PGD-linf; with ``pixels``, also PGD-l2."""
        l2 = [self.l2_evaluation(pixels)] if pixels else []
        return Job(
            row,
            recipe,
            {**self.numbers(pixels=pixels), **(extra or {})},
            evaluations=[EvaluationSpec(), *l2, *evaluations],
        )

    def jobs_with_l2(self, recipes: Mapping[str, Recipe]) -> list[Job]:
        """Return a row for each recipe, with PGD-l2."""
        return [
            self.job(row, recipe, pixels=pixels(recipe)) for row, recipe in recipes.items()
        ]


PLAIN_SGD = Recipe(
    norm=NormSpec(name="none"),
    objective=ObjectiveSpec(name="standard"),
    optimizer=OptimizerSpec(name="sgd", momentum=0),
    validation=ValidationSpec(samples=10, steps=1),
    evaluation=EvaluationSpec(weights="last"),
)
"""Clean training of the smaller models, without momentum and norm.

The last weights are evaluated, so validation is as cheap as it can be.
"""

CIFAR: dict[Scale, PerturbationSizes] = {
    "full": PerturbationSizes(0.006, 0.05),
    "reduced": PerturbationSizes(0.012, 0.1),
    "smoke": PerturbationSizes(0.012, 0.1),
}
"""At reduced both are twice the paper's: small networks on few images have wide margins."""

_SIZES: dict[Scale, RecipeChanges] = {
    "full": {
        "data": DataSpec(name="cifar10", augment="crop_flip"),
        "batch_size": 128,
        "validation": ValidationSpec(samples=None),
    },
    "reduced": {
        "data": DataSpec(name="cifar10", augment="crop_flip", train=4000, test=500),
        "batch_size": 32,
        "epochs": 15,
        "validation": ValidationSpec(every=5, samples=250),
    },
    "smoke": {
        "data": DataSpec(size=32, train=60, test=20),
        "batch_size": 20,
        "epochs": 1,
        "validation": ValidationSpec(samples=10),
    },
}


def recipe(scale: Scale, name: str, *, epochs: int = 150) -> Recipe:
    """Train on clean CIFAR-10 with crops and flips; the best validation accuracy counts.

    SGD with momentum 0.9, weight decay 5e-4, batches of 128. Reduced: 4,000 images, batches
    of 32, 15 epochs, 500 test images. The paper does not say how large its validation set
    is: a tenth of the training images here.
    """
    sizes = CIFAR[scale]
    base = Recipe(
        name=f"galloway2019.{name}",
        epochs=epochs,
        norm=NormSpec(name="none"),
        objective=ObjectiveSpec(name="standard"),
        optimizer=OptimizerSpec(lr=0.01, momentum=0.9, weight_decay=5e-4),
        threat=ThreatSpec(eps=sizes.eps),
        validation=ValidationSpec(steps=1, select_by="clean"),
        evaluation=sizes.evaluation,
    )
    return base.replace(**_SIZES[scale])


_WIDTH: dict[Scale, int] = {"full": 64, "reduced": 8, "smoke": 4}


def vgg(scale: Scale, depth: int, *, norm: bool, epochs: int = 150) -> Recipe:
    """Return the paper's VGG of a depth, 8 times narrower at reduced."""
    return recipe(scale, "vgg", epochs=epochs).replace(
        model=ModelSpec(name=f"vgg{depth}", options={"width": _WIDTH[scale]}),
        norm=NormSpec(name="batch" if norm else "none"),
    )


def wide(scale: Scale, *, norm: bool) -> Recipe:
    """WideResNet-28-10 with batch norm, or with Fixup and one batch norm at its end (E.1).

    The paper names an implementation and stops at 150 epochs; its learning rates are not
    printed. Here: 0.1 with Nesterov momentum, times 0.2 at epochs 60 and 120, a tenth of it
    for Fixup's scalars, no mixup. At reduced a WideResNet-10-1 on 16x16 pixels.
    """
    full = scale == "full"
    options: dict[str, Option] = {"depth": 28 if full else 10, "widen": 10 if full else 1}
    if not norm:
        options["final_norm"] = True
    network = recipe(scale, "wide").replace(
        model=ModelSpec(
            name="wide_resnet" if norm else "fixup_wide_resnet", options=options
        ),
        norm=NormSpec(name="batch"),
        optimizer=OptimizerSpec(
            lr=0.1 if full else 0.05,
            nesterov=True,
            schedule=Piecewise(at=(60, 120) if full else (8, 12), factor=0.2),
            scalar_lr_factor=1 if norm else 0.1,
        ),
    )
    return network if full else network.replace(data=DataSpec(size=16))


def pixels(recipe: Recipe) -> int:
    """Return how many values an image of a recipe's data has."""
    channels = 1 if recipe.data.name == "digits" else 3
    return channels * (recipe.data.size or 32) ** 2
