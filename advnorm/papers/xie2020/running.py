"""Batch statistics against running ones (section 4.3, appendix B.2)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, below, more
from advnorm.papers.xie2020.mixture import branches_job
from advnorm.papers.xie2020.setting import (
    ADVERSARIAL,
    ATTACKS,
    MBN,
    MBN_ALP,
    NEEDS,
    job,
    point,
    recipe,
)
from advnorm.papers.xie2020.table import STRATEGIES, hardest
from advnorm.records import Scale

_ROBUST = (ADVERSARIAL, MBN, MBN_ALP)
_GAPS = {
    "batch mean from running": "batch from running mean, in deviations",
    "batch variance from running": "batch from running variance, relative",
    "mean, by chance": "batch from running mean by chance, in deviations",
    "variance, by chance": "batch from running variance by chance, relative",
}
"""How far they are apart, and how far they would be had the running ones converged."""


@artefact(
    "xie2020/figure6",
    "Statistics of mini-batches against running ones, channel by channel",
    claims=(
        Claim(
            "the batch mean is almost the running mean (within a tenth of a deviation)",
            (below(ADVERSARIAL, "batch mean from running", 0.1),),
        ),
        Claim(
            "the batch variance has not converged to the running variance (asked for: they "
            "differ by more than chance)",
            (
                more(
                    (ADVERSARIAL, "batch variance from running"),
                    (ADVERSARIAL, "variance, by chance"),
                ),
            ),
        ),
    ),
    shown=("branches",),
    needs=NEEDS,
)
def figure6(scale: Scale) -> Sequence[Job]:
    """Draw two adversarial mini-batches and the running statistics at 20 channels.

    The numbers are means over all channels and norms: differences of means in running
    deviations, of variances relative to the running one. The paper compares by eye. Ours
    are 20 batches of training images, others for each seed, of 32 as on one of its GPUs; at
    reduced of 100, the batch size. By chance a batch of n normal values is off
    by about 1 / sqrt(n) in the mean and sqrt(2 / n) in the variance, so that the second is
    larger in any network: what is chance is measured too.
    """
    return [branches_job(scale, ADVERSARIAL, recipe(scale, ADVERSARIAL), _GAPS)]


@artefact(
    "xie2020/table2",
    "Running statistics in the last epochs of training",
    columns=("clean", "PGD-2000"),
    published={
        name: (STRATEGIES[30][name][0], hardest(name))
        for plain in _ROBUST
        for name in (plain, f"{plain}*")
    },
    claims=tuple(
        Claim(
            f"running statistics in the last epochs make {name} more robust",
            (more((f"{name}*", "PGD-2000"), (name, "PGD-2000")),),
        )
        for name in _ROBUST
    ),
    needs=NEEDS,
)
def table2(scale: Scale) -> Sequence[Job]:
    """Train the last 10 of 110 epochs (*) with the running statistics; at reduced 2 of 20.

    The paper prints differences; here are the accuracies. Clean ones are of its Table 7.
    """
    plain = (ADVERSARIAL,) if scale == "smoke" else _ROBUST
    names = [name for one in plain for name in (one, f"{one}*")]
    return [job(scale, name, recipe(scale, name)) for name in names]


@artefact(
    "xie2020/table5",
    "Running statistics in the last epochs, by steps of the training attack",
    columns=tuple(f"trained with PGD-{steps}" for steps in (5, 10, 20, 30)),
    published={
        name: tuple(hardest(name, steps) for steps in (5, 10, 20, 30))
        for plain in _ROBUST
        for name in (plain, f"{plain}*")
    },
    claims=(
        Claim(
            "running statistics in the last epochs help in all twelve settings",
            tuple(
                more((f"{name}*", column), (name, column))
                for name in _ROBUST
                for column in (f"trained with PGD-{steps}" for steps in (5, 10, 20, 30))
            ),
        ),
    ),
    needs=NEEDS,
)
def table5(scale: Scale) -> Sequence[Job]:
    """Train with PGD-5 to PGD-30, each with and without the star; test with PGD-2000.

    The rows that the paper calls "MBN, 100% adv + 0% clean" are of 100% adv + 100% clean,
    as its Table 4 shows. At reduced the attacks are of 1, 2, 3 and 5 steps.
    """
    plain = (ADVERSARIAL,) if scale == "smoke" else _ROBUST
    steps = (5, 30) if scale == "smoke" else tuple(ATTACKS[scale])
    return [
        point(scale, name, f"trained with PGD-{count}", recipe(scale, name, steps=count))
        for one in plain
        for name in (one, f"{one}*")
        for count in steps
    ]
