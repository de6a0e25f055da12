"""How strong APART's perturbation of the statistics is (section 4.4, Figure 1)."""

from collections.abc import Sequence

from advnorm.evaluation.perturbed_statistics import Direction, Perturbation
from advnorm.papers.apart2022.setting import BATCH, perturbed_numbers, recipe
from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, more, wider, within
from advnorm.recipe import EvaluationSpec, PerturbationSpec, Recipe
from advnorm.records import Scale

_ROWS: dict[str, tuple[Direction, int]] = {
    "uniform": ("uniform", 1),
    "binary": ("sign", 1),
    "APART, n=1": ("adversarial", 1),
    "APART, n=4": ("adversarial", 4),
    "APART, n=16": ("adversarial", 16),
}
"""Direction and groups."""
_BATCHES: dict[Scale, int] = {"full": 389, "reduced": 70, "smoke": 3}
"""Whole batches of training images whose accuracy is measured."""


@artefact(
    "apart2022/figure1",
    "Training accuracy under random and adversarial statistics of batch norms",
    x="radius",
    y="training accuracy, %",
    claims=(
        Claim(
            "uniform perturbations cost almost nothing, whatever the radius (asked for: "
            "less than 5 points)",
            (within(("uniform", "0"), ("uniform", "0.4"), 5),),
        ),
        Claim(
            "APART's reduce the accuracy even at a small radius (asked for: at 0.05, and "
            "at 0.1 more than binary ones)",
            (
                more(("APART, n=1", "0"), ("APART, n=1", "0.05")),
                more(("binary", "0.1"), ("APART, n=1", "0.1")),
            ),
        ),
        Claim(
            "binary ones cost little at a small radius (asked for: less than 5 points at "
            "0.1)",
            (within(("binary", "0"), ("binary", "0.1"), 5),),
        ),
        Claim(
            "binary ones lower the accuracy at a large radius (asked for: 5 points at 0.4)",
            (more(("binary", "0"), ("binary", "0.4"), by=5),),
        ),
        Claim(
            "the more groups, the lower the accuracy at a small radius",
            (
                more(("APART, n=1", "0.05"), ("APART, n=4", "0.05")),
                more(("APART, n=4", "0.05"), ("APART, n=16", "0.05")),
            ),
        ),
        Claim(
            "more groups lower the accuracy especially at a small radius (asked for: more "
            "at 0.05 than at 0.4)",
            tuple(
                wider(
                    ((f"APART, n={few}", "0.05"), (f"APART, n={many}", "0.05")),
                    ((f"APART, n={few}", "0.4"), (f"APART, n={many}", "0.4")),
                )
                for few, many in ((1, 4), (4, 16))
            ),
        ),
    ),
)
def figure1(scale: Scale) -> Sequence[Job]:
    """Shift the batch statistics of a trained WideResNet-40-2 (CIFAR-100), both moments.

    The direction of APART comes from one batch of training images; the accuracy is that of
    all training images, in batches of 128 as in training. Radii and group numbers of the
    figure are not in the text: 0 to 0.4 and 1, 4, 16 here; at full scale the last 108
    images, no whole batch, are left out.
    ``reduced``: the standard model of Table 3, 4,480 images in batches of 64.
    """
    radii = (0.0, 0.05, 0.1, 0.2, 0.4)
    base = recipe(scale, "WRN", "CIFAR-100")
    return [
        Job(
            row,
            _perturbed(scale, base, direction, groups, radii),
            perturbed_numbers(
                Perturbation(direction, "both", batch=True, groups=groups), radii
            ),
            evaluations=(),
            perturbed=True,
        )
        for row, (direction, groups) in _ROWS.items()
    ]


def _perturbed(
    scale: Scale, base: Recipe, direction: Direction, groups: int, radii: Sequence[float]
) -> Recipe:
    batch = BATCH[scale]
    return base.replace(
        evaluation=EvaluationSpec(batch_size=batch, samples=batch * _BATCHES[scale]),
        perturbation=PerturbationSpec(
            radii=list(radii),
            directions=(direction,),
            parts=("both",),
            statistics="batch",
            split="train",
            groups=groups,
            attack_samples=batch,
        ),
    )
