"""Sequential against concatenated batches (section 3.1, appendix C)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, Gain, Part, more, wider, within
from advnorm.papers.numbers import AnswerNumber
from advnorm.papers.sitawarin2021.setting import (
    COLUMNS,
    GAP,
    PROBLEMS,
    Problem,
    accuracies,
    from_pgd_to_aa,
    mat,
    more_of_both,
    recipe,
    trades,
)
from advnorm.records import Scale

_PAIRS = {"MAT-Cat-0.5": "MAT-Seq-0.5", "TRADES-Cat-6": "TRADES-Seq-6"}
"""The rows of each method: concatenated batches, and sequential ones."""


def _better_under_pgd(*problems: Problem) -> tuple[Part, ...]:
    columns = [f"{problem} PGD" for problem in problems]
    return tuple(more((c, x), (s, x)) for x in columns for c, s in _PAIRS.items())


@artefact(
    "sitawarin2021/table1",
    "Sequential and concatenated batches",
    columns=COLUMNS,
    published={
        "MAT-Seq-0.5": (85.13, 45.15, 40.77, 52.85, 21.96, 10.08, 67.82, 24.60, 13.99),
        "MAT-Cat-0.5": (85.53, 46.03, 43.29, 93.95, 33.11, 3.70, 72.43, 28.62, 23.67),
        "TRADES-Seq-6": (81.26, 50.73, 46.89, 70.42, 24.24, 17.18, 68.51, 27.90, 22.14),
        "TRADES-Cat-6": (80.75, 52.06, 48.14, 73.82, 33.16, 22.89, 62.14, 28.83, 23.77),
    },
    claims=(
        Claim(
            "at 16/255 concatenation makes TRADES better, clean and under AutoAttack "
            "(3.4 and 5.7 points in the paper)",
            more_of_both("TRADES-Cat-6", "TRADES-Seq-6", "16/255 "),
        ),
        Claim(
            "at 8/255 concatenation makes MAT and TRADES better under AutoAttack (1 to 3 "
            "points in the paper)",
            (
                more(("MAT-Cat-0.5", "8/255 AA"), ("MAT-Seq-0.5", "8/255 AA")),
                more(("TRADES-Cat-6", "8/255 AA"), ("TRADES-Seq-6", "8/255 AA")),
            ),
        ),
        Claim(
            "at 8/255 and at 16/255 concatenation makes MAT and TRADES better under PGD "
            "(0.9 to 11 points in the paper)",
            _better_under_pgd("8/255", "16/255"),
        ),
        Claim(
            "on Imagenette concatenation makes MAT and TRADES better under PGD (4 points "
            "and 1 in the paper)",
            _better_under_pgd("Imagenette"),
            scales=("full",),
        ),
        Claim(
            "at 16/255 MAT-Cat loses more from PGD to AutoAttack than TRADES-Cat",
            (wider(from_pgd_to_aa("MAT-Cat-0.5"), from_pgd_to_aa("TRADES-Cat-6")),),
        ),
        Claim(
            f"MAT-Cat is falsely robust at 16/255 (PGD minus AA > {GAP:g} points) and "
            "TRADES-Cat is not",
            (
                more(*from_pgd_to_aa("MAT-Cat-0.5"), by=GAP),
                within(*from_pgd_to_aa("TRADES-Cat-6"), GAP),
            ),
            scales=("full",),
        ),
        Claim(
            "on Imagenette concatenation makes MAT better, clean and under AutoAttack (5 "
            "and 10 points in the paper)",
            more_of_both("MAT-Cat-0.5", "MAT-Seq-0.5", "Imagenette "),
            scales=("full",),
        ),
    ),
)
def table1(scale: Scale) -> Sequence[Job]:
    """MAT (gamma 0.5) and TRADES (beta 6), with batch norm.

    The caption says ResNet-20 for CIFAR-10; appendix B, followed here, ResNet-18.
    Imagenette is there at scale full only.
    """
    methods = {
        "MAT-Seq-0.5": mat(0.5, "sequential"),
        "MAT-Cat-0.5": mat(0.5),
        "TRADES-Seq-6": trades(6, "sequential"),
        "TRADES-Cat-6": trades(6),
    }
    return [
        Job(
            row,
            recipe(scale, problem, objective),
            accuracies(scale, problem, f"{problem} "),
        )
        for row, objective in methods.items()
        for problem in PROBLEMS[scale]
    ]


_OVER = "wasserstein_over_training"
_DOMAINS = ("clean", "adversarial")
_SEQ, _CAT = "MAT-Seq-0.25", "MAT-Cat-0.25"


def _rise(row: str, domain: str) -> Gain:
    """Return the largest distance of the second half, and that at the end."""
    return (row, f"{domain}, peak"), (row, f"{domain}, end")


@artefact(
    "sitawarin2021/figure4",
    "Distance of the batches from the running statistics over training",
    claims=(
        Claim(
            "the distances are larger with sequential batches than with concatenated ones",
            tuple(more((_SEQ, f"{d}, mean"), (_CAT, f"{d}, mean")) for d in _DOMAINS),
        ),
        Claim(
            "sequential ones are unstable and shoot up several times, concatenated ones "
            "converge steadily (asked for: in the second half they rise further above the "
            "end with sequential batches)",
            tuple(wider(_rise(_SEQ, domain), _rise(_CAT, domain)) for domain in _DOMAINS),
        ),
        Claim(
            "with concatenated batches they converge to zero: at the end they are below "
            "their mean",
            tuple(more((_CAT, f"{d}, mean"), (_CAT, f"{d}, end")) for d in _DOMAINS),
        ),
    ),
    shown=(_OVER,),
)
def figure4(scale: Scale) -> Sequence[Job]:
    """MAT with gamma 0.25 on CIFAR-10 at 16/255, batch norm, looked at every 10th step.

    Squared distances (Eqn. 7) of clean and adversarial batches, summed over all norms: the
    mean over training, that of its last tenth, and the largest of its second half. The
    paper does not say of which norm its curves are, nor how often it looked.
    """
    kinds = [f"{domain}, {kind}" for domain in _DOMAINS for kind in ("mean", "end", "peak")]
    numbers = {kind: AnswerNumber(_OVER, kind) for kind in kinds}
    methods = {_SEQ: mat(0.25, "sequential"), _CAT: mat(0.25)}
    return [
        Job(row, recipe(scale, "16/255", objective), numbers)
        for row, objective in methods.items()
    ]
