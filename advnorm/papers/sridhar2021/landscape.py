"""What makes adversarial training unstable, seen while it trains (Figure 1)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, Gain, Part, more, wider
from advnorm.papers.numbers import AnswerNumber
from advnorm.papers.sridhar2021 import adversarial
from advnorm.papers.sridhar2021 import certified as bounded
from advnorm.papers.sridhar2021.setting import certified, pgd_at
from advnorm.records import Scale

_SIZES = {"gradient norm": "gradient_norm", "Hessian": "hessian"}
_TENSORS = {
    "mean norm of tensors": AnswerNumber("gradient_norm_over_training", "mean of norms"),
    "mean norm of tensors, end": AnswerNumber(
        "gradient_norm_over_training", "mean of norms, end"
    ),
}
_JUMPS = {"mean, jumps": "jumps of the mean", "variance, jumps": "jumps of the variance"}
_SPREADS = {
    "mean, spread": "relative spread of the mean",
    "variance, spread": "relative spread of the variance",
}
_METHODS = ("PGD-AT", "IBP")


def _lower(method: str, columns: Sequence[str]) -> tuple[Part, ...]:
    """Claim that batch norm lowers these numbers for one way to train."""
    return tuple(more((method, c), (f"{method}, BN", c)) for c in columns)


def _rise(row: str, column: str) -> Gain:
    """Return the end of a curve, and its mean."""
    return (row, f"{column}, end"), (row, column)


def _claims(method: str) -> tuple[Claim, ...]:
    """Return the paper's claims, of one way to train."""
    return (
        Claim(
            f"{method}: batch norm lowers the norm of the gradient and the Hessian's "
            "eigenvalue",
            _lower(method, tuple(_SIZES)),
        ),
        Claim(
            f"{method}: without batch norm both keep rising",
            tuple(more(*_rise(method, c)) for c in _SIZES),
        ),
        Claim(
            f"{method}: with batch norm both stabilize (asked for: towards the end they "
            "rise less than without)",
            tuple(wider(_rise(method, c), _rise(f"{method}, BN", c)) for c in _SIZES),
        ),
        Claim(
            f"{method}: batch norm mutes the jumps of the deepest feature map's z-scores",
            _lower(method, tuple(_JUMPS)),
        ),
        Claim(
            f"{method}: batch norm lowers the relative spread of the deepest feature map's "
            "moments",
            _lower(method, tuple(_SPREADS)),
        ),
    )


@artefact(
    "sridhar2021/figure1",
    "Smoothness and covariate shift while PGD-AT and IBP train, with and without BN",
    claims=tuple(claim for method in _METHODS for claim in _claims(method)),
    shown=(
        "gradient_norm_over_training",
        "hessian_over_training",
        "moments_over_training",
    ),
)
def figure1(scale: Scale) -> Sequence[Job]:
    """Measure at every 10th batch of PGD-AT and IBP of the large CNN at 8.8/255 (CIFAR-10).

    The figure shows curves; the numbers here are a curve's mean, the mean of its last tenth
    (end), of the deepest feature map's mean and variance the mean jump between neighbouring
    z-scores and, as the appendix speaks of a percentage basis, the deviation over the mean
    (spread). The paper's "average norm of all gradients" may be that of the whole gradient
    or the mean over its tensors. Claims are about the first, which does not depend on how
    weights are divided into tensors: batch norm brings small ones. At full both are shown.
    The deepest feature map is that of the images which the loss is taken of: adversarial
    ones, for IBP clean ones.
    ``reduced``: MNIST, PGD-AT at 0.3 and every 40th batch of IBP at 0.4, runs of Tables 1
    and 2.
    """
    pgd, ibp = adversarial.figure_budget(scale), bounded.figure_budget(scale)
    jobs = []
    for label, norm in (("", "none"), (", BN", "batch")):
        recipe = pgd_at(scale, pgd, norm=norm, monitored=True)
        jobs.append(
            Job(f"PGD-AT{label}", recipe, _numbers(scale, "adversarial"), evaluations=())
        )
        recipe = certified(scale, ibp, norm=norm, monitored=True)
        jobs.append(Job(f"IBP{label}", recipe, _numbers(scale, "clean"), evaluations=()))
    return sorted(jobs, key=lambda job: not job.row.startswith("PGD"))


def _numbers(scale: Scale, domain: str) -> dict[str, AnswerNumber]:
    sizes = {
        f"{column}{part}": AnswerNumber(f"{question}_over_training", name)
        for column, question in _SIZES.items()
        for part, name in (("", "mean"), (", end", "end"))
    }
    moments = {
        column: AnswerNumber("moments_over_training", f"{name}, {domain}")
        for column, name in (_JUMPS | _SPREADS).items()
    }
    return sizes | moments | ({} if scale == "reduced" else _TENSORS)
