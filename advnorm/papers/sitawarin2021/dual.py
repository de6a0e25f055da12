"""Dual batch norm, and the trade-off with all parts together (section 5, appendix F)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, more, wider, within
from advnorm.papers.sitawarin2021.setting import (
    BATCH,
    COLUMNS,
    DUAL,
    DUAL_SUM,
    GAP,
    PROBLEMS,
    Problem,
    accuracies,
    adversarial,
    from_pgd_to_aa,
    mat,
    mat_kl,
    more_of_both,
    recipe,
    tradeoff,
    trades,
)
from advnorm.recipe import NormSpec, ObjectiveSpec
from advnorm.records import Scale

_Method = tuple[ObjectiveSpec, NormSpec]
_WITH = {
    "TRADES-Cat + DBN": "TRADES-Cat",
    "MAT-Cat + DBN": "MAT-Cat",
    "MAT-Cat + DBN + KL": "MAT-Cat + KL",
}


@artefact(
    "sitawarin2021/table4",
    "Dual batch norm and the divergence, added one by one",
    columns=COLUMNS,
    published={
        "TRADES-Cat": (82.20, 52.06, 48.10, 73.82, 33.16, 22.89, 62.14, 28.83, 23.77),
        "TRADES-Cat + DBN": (81.68, 53.65, 49.01, 74.79, 36.91, 22.63, 64.89, 31.59, 24.79),
        "MAT-Cat": (85.53, 46.03, 43.29, 93.95, 33.11, 3.70, 72.43, 28.62, 23.67),
        "MAT-Cat + DBN": (87.64, 48.05, 43.85, 93.60, 32.19, 0.98, 75.34, 31.69, 25.17),
        "MAT-Cat + KL": (84.28, 51.42, 47.38, 75.21, 32.19, 22.92, 66.29, 33.50, 27.39),
        "MAT-Cat + DBN + KL": (
            82.97,
            51.96,
            48.05,
            76.39,
            31.39,
            22.41,
            72.74,
            33.89,
            25.81,
        ),
    },
    claims=(
        *(
            Claim(
                f"dual batch norm adds accuracy under AutoAttack at 8/255 to {base} (up to "
                "a point in the paper)",
                (more((row, "8/255 AA"), (base, "8/255 AA")),),
            )
            for row, base in _WITH.items()
        ),
        Claim(
            "at 8/255 dual batch norm improves MAT-Cat, clean and under AutoAttack (2.1 "
            "and 0.6 points in the paper)",
            more_of_both("MAT-Cat + DBN", "MAT-Cat", "8/255 "),
        ),
        Claim(
            "on Imagenette dual batch norm improves MAT-Cat, clean and under AutoAttack "
            "(2.9 and 1.5 points in the paper)",
            more_of_both("MAT-Cat + DBN", "MAT-Cat", "Imagenette "),
            scales=("full",),
        ),
        *(
            Claim(
                "at 16/255 the divergence narrows the gap from PGD to AutoAttack of "
                f"{method}",
                (wider(from_pgd_to_aa(method), from_pgd_to_aa(f"{method} + KL")),),
            )
            for method in ("MAT-Cat", "MAT-Cat + DBN")
        ),
        Claim(
            "dual batch norm does not solve the false robustness of MAT-Cat at 16/255: "
            f"PGD minus AA > {GAP:g} points with it and without",
            tuple(
                more(*from_pgd_to_aa(row), by=GAP) for row in ("MAT-Cat", "MAT-Cat + DBN")
            ),
            scales=("full",),
        ),
        Claim(
            "the divergence eliminates it, with batch norm and with dual batch norm",
            tuple(
                within(*from_pgd_to_aa(row), GAP)
                for row in ("MAT-Cat + KL", "MAT-Cat + DBN + KL")
            ),
            scales=("full",),
        ),
        Claim(
            "on Imagenette dual batch norm adds clean accuracy (2.8 to 6.5 points in the "
            "paper)",
            tuple(
                more((row, "Imagenette Clean"), (base, "Imagenette Clean"))
                for row, base in _WITH.items()
            ),
            scales=("full",),
        ),
    ),
)
def table4(scale: Scale) -> Sequence[Job]:
    """TRADES with beta 6, MAT with gamma 0.5, the divergence with beta 1.

    At 8/255 the paper has another TRADES-Cat here than in Table 1 (80.75 clean there). The
    caption says that dual batch norm improves the accuracy in all cases, its numbers do
    not: TRADES-Cat at 8/255 (clean 82.20 to 81.68) and at 16/255 (AA 22.89 to 22.63),
    MAT-Cat + KL on Imagenette (AA 27.39 to 25.81).
    Imagenette is there at scale full only. The likelihood loss of dual batch norm has
    weight 1 and is the mean over positions and channels; the last row has the sum over
    pixels, which is the paper's wording.
    """
    methods: dict[str, _Method] = {
        "TRADES-Cat": (trades(6), BATCH),
        "TRADES-Cat + DBN": (trades(6), DUAL),
        "MAT-Cat": (mat(0.5), BATCH),
        "MAT-Cat + DBN": (mat(0.5), DUAL),
        "MAT-Cat + KL": (mat_kl(1), BATCH),
        "MAT-Cat + DBN + KL": (mat_kl(1), DUAL),
        "MAT-Cat + DBN, summed likelihood": (mat(0.5), DUAL_SUM),
    }
    return [
        Job(row, recipe(scale, problem, *method), accuracies(scale, problem, f"{problem} "))
        for row, method in methods.items()
        for problem in PROBLEMS[scale]
    ]


_WEIGHTS: dict[Scale, dict[str, tuple[float, ...]]] = {
    "full": {
        "MAT-Cat + DBN + KL-": (0.25, 0.5, 1, 2, 4),
        "MAT-Cat-": (0.1, 0.25, 0.5, 0.75),
        "TRADES-Seq-": (1, 3, 6, 9),
    },
    "reduced": {"MAT-Cat + DBN + KL-": (1,), "MAT-Cat-": (0.5,), "TRADES-Seq-": (6,)},
    "smoke": {"MAT-Cat + DBN + KL-": (1,), "MAT-Cat-": (0.5,), "TRADES-Seq-": (6,)},
}


def _tradeoff(scale: Scale, problems: Sequence[Problem]) -> list[Job]:
    """Return the best scheme, MAT-Cat and TRADES-Seq over their weights."""
    methods = {
        f"{kind}{weight:g}": _method(kind, weight)
        for kind, weights in _WEIGHTS[scale].items()
        for weight in weights
    }
    return [
        _point(scale, problem, row, method)
        for row, method in methods.items()
        for problem in problems
    ]


def _point(scale: Scale, problem: Problem, row: str, method: _Method) -> Job:
    """Return a point of a trade-off: clean accuracy and that under AutoAttack."""
    numbers = tradeoff(scale, problem, f"{problem} ")
    return Job(row, recipe(scale, problem, *method), numbers)


def _method(kind: str, weight: float) -> _Method:
    if kind == "TRADES-Seq-":
        return trades(weight, "sequential"), BATCH
    return (mat(weight), BATCH) if kind == "MAT-Cat-" else (mat_kl(weight), DUAL)


_OURS, _SEQ = "MAT-Cat + DBN + KL-1", "TRADES-Seq-6"
_NUMBERS = ("Clean", "AA", "PGD - AA")


@artefact(
    "sitawarin2021/figure3",
    "Clean accuracy against that under AutoAttack at 16/255: best scheme, two others",
    columns=tuple(f"{p} {number}" for p in ("16/255", "Imagenette") for number in _NUMBERS),
    published={
        _OURS: (76.39, 22.41, 8.98, 72.74, 25.81, 8.08),
        "MAT-Cat-0.25": (76.41, 21.39, 9.85, None, None, None),
        "MAT-Cat-0.5": (93.95, 3.70, 29.41, 72.43, 23.67, 4.95),
        _SEQ: (70.42, 17.18, 7.06, 68.51, 22.14, 5.76),
        "AT": (66.44, 24.26, 9.77, None, None, None),
    },
    claims=(
        Claim(
            "at 16/255 the best scheme has more of both accuracies than TRADES-Seq",
            more_of_both(_OURS, _SEQ, "16/255 "),
        ),
        Claim(
            "on Imagenette it has more of both than TRADES-Seq and MAT-Cat",
            (
                *more_of_both(_OURS, _SEQ, "Imagenette "),
                *more_of_both(_OURS, "MAT-Cat-0.5", "Imagenette "),
            ),
            scales=("full",),
        ),
        Claim(
            "MAT-Cat with a small gamma outperforms TRADES-Seq (asked for: more of both at "
            "gamma 0.25)",
            more_of_both("MAT-Cat-0.25", _SEQ, "16/255 "),
            scales=("full",),
        ),
        Claim(
            "MAT-Cat with a small gamma outperforms adversarial training (asked for: more "
            "of both at gamma 0.1)",
            more_of_both("MAT-Cat-0.1", "AT", "16/255 "),
            scales=("full",),
        ),
        Claim(
            "at 16/255 the best scheme has a better trade-off than MAT-Cat (asked for: "
            "more under AutoAttack than at gamma 0.25, and clean at most a point below)",
            (
                more((_OURS, "16/255 AA"), ("MAT-Cat-0.25", "16/255 AA")),
                within(("MAT-Cat-0.25", "16/255 Clean"), (_OURS, "16/255 Clean"), 1),
            ),
            scales=("full",),
        ),
    ),
)
def figure3(scale: Scale) -> Sequence[Job]:
    """CIFAR-10 at 16/255 (a) and, at full, Imagenette at 16/255 (b).

    The numbers beside ours are from its tables; which weights are drawn the paper does not
    state: ours were chosen around those of the tables. At full, PGD less AA stands for the
    dashed lines of false robustness, and adversarial training at 16/255 is the point that
    section 5.2 compares with. At the weights of the tables the best scheme and MAT-Cat
    (gamma 0.25) are equal in clean accuracy (76.39 and 76.41).
    """
    problems: tuple[Problem, ...] = ("16/255", "Imagenette")
    jobs = _tradeoff(scale, [p for p in problems if p in PROBLEMS[scale]])
    if scale == "full":
        jobs.append(_point(scale, "16/255", "AT", (adversarial(), BATCH)))
    return jobs


@artefact(
    "sitawarin2021/figure6",
    "Clean accuracy against that under AutoAttack at 8/255: best scheme, two others",
    columns=tuple(f"8/255 {number}" for number in _NUMBERS),
    published={
        _OURS: (82.97, 48.05, 3.91),
        "MAT-Cat-0.5": (85.53, 43.29, 2.74),
        _SEQ: (81.26, 46.89, 3.84),
    },
    claims=(
        Claim(
            "at 8/255 the best scheme has more of both accuracies than TRADES-Seq",
            more_of_both(_OURS, _SEQ, "8/255 "),
        ),
    ),
)
def figure6(scale: Scale) -> Sequence[Job]:
    """CIFAR-10 at 8/255, as Figure 3.

    Section 5.2 puts the best scheme above the baselines across the board; at the weights of
    the tables it has less clean accuracy than MAT-Cat and more under AutoAttack (82.97 and
    48.05 against 85.53 and 43.29), so that it is held against TRADES-Seq alone.
    """
    return _tradeoff(scale, ("8/255",))
