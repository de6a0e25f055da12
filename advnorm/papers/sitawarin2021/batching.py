"""Sequential against concatenated batches (section 3.1, appendix C)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, Gain, Part, more, wider, within
from advnorm.papers.numbers import AnswerNumber
from advnorm.papers.sitawarin2021.setting import (
    COLUMNS,
    GAP,
    PROBLEMS,
    TRAINING_ATTACK,
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


_REDUCED: tuple[Problem, ...] = ("8/255", "16/255")


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
        *(
            Claim(
                f"at 8/255 {concatenated} is better under AutoAttack than {sequential} (1 "
                "to 3 points in the paper)",
                (more((concatenated, "8/255 AA"), (sequential, "8/255 AA")),),
            )
            for concatenated, sequential in _PAIRS.items()
        ),
        *(
            Claim(
                f"at {problem} concatenation makes MAT and TRADES better under PGD (0.9 to "
                "11 points in the paper)",
                _better_under_pgd(problem),
            )
            for problem in _REDUCED
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
_AVERAGED = ", averaged"


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
        Claim(
            "averaged over 20 batches at the end, running statistics lag further behind "
            "with sequential batches",
            (more((f"{_SEQ}{_AVERAGED}", "lag"), (f"{_CAT}{_AVERAGED}", "lag")),),
        ),
        Claim(
            "and each domain's moments are further from where they settle",
            tuple(
                more(
                    (f"{_SEQ}{_AVERAGED}", f"{domain}, systematic"),
                    (f"{_CAT}{_AVERAGED}", f"{domain}, systematic"),
                )
                for domain in _DOMAINS
            ),
        ),
    ),
    shown=(_OVER,),
)
def figure4(scale: Scale) -> Sequence[Job]:
    """MAT with gamma 0.25 on CIFAR-10 at 16/255, batch norm, looked at every 10th step.

    Squared distances (Eqn. 7) of clean and adversarial batches, summed over all norms: the
    mean over training, that of its last tenth, and the largest of its second half. The
    paper does not say of which norm its curves are, nor how often it looked. Moments of one
    batch are noisy, those after a fully connected layer most of all: rows "averaged" have,
    at the end of training, the moments of 20 and more test batches averaged, and norms of
    feature maps alone. Their distance from the running statistics is in two parts: the lag
    behind where these settle, and each domain's distance from there.
    """
    kinds = [f"{domain}, {kind}" for domain in _DOMAINS for kind in ("mean", "end", "peak")]
    numbers = {kind: AnswerNumber(_OVER, kind) for kind in kinds}
    methods = {_SEQ: mat(0.25, "sequential"), _CAT: mat(0.25)}
    parts = {
        name: AnswerNumber("statistics_gap", name)
        for name in ("lag", *(f"{domain}, systematic" for domain in _DOMAINS))
    }
    samples, batch = {"full": (5120, 128), "reduced": (1000, 50), "smoke": (30, 10)}[scale]
    jobs = []
    for row, objective in methods.items():
        options = {
            "attack": TRAINING_ATTACK[scale],
            "batching": objective.batching,
            "batch_size": batch,
        }
        run = recipe(scale, "16/255", objective)
        jobs += [
            Job(row, run, numbers),
            Job(f"{row}{_AVERAGED}", run, parts, {"statistics_gap": options}, samples),
        ]
    return jobs
