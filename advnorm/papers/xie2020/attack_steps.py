"""How strong the attack in training has to be (appendix B.1)."""

from collections.abc import Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, below, more, within
from advnorm.papers.xie2020.setting import (
    ADVERSARIAL,
    ALP,
    MBN,
    MBN_ALP,
    MIXED,
    NEEDS,
    point,
    recipe,
)
from advnorm.papers.xie2020.table import hardest
from advnorm.records import Scale

_ALL = (ADVERSARIAL, MIXED, ALP, MBN, MBN_ALP)
_COLUMNS = {steps: f"trained with PGD-{steps}" for steps in (30, 20, 10, 5)}


@artefact(
    "xie2020/table4",
    "Robustness by steps of the training attack",
    columns=tuple(_COLUMNS.values()),
    published={name: tuple(hardest(name, steps) for steps in _COLUMNS) for name in _ALL},
    claims=(
        Claim(
            "fewer steps cost training with clean images and batch norm nearly all of its "
            "robustness (half of the paper's loss)",
            (
                more((MIXED, _COLUMNS[30]), (MIXED, _COLUMNS[5]), by=10),
                more((ALP, _COLUMNS[30]), (ALP, _COLUMNS[5]), by=11),
            ),
        ),
        Claim(
            "trained with PGD-5 they have nearly none (under 2%)",
            (below(MIXED, _COLUMNS[5], 2), below(ALP, _COLUMNS[5], 2)),
            scales=("full",),
        ),
        Claim(
            "strategies that withstand strong attacks lose robustness too, at a reasonable "
            "amount (asked for: under 8 points)",
            tuple(
                part
                for name in (ADVERSARIAL, MBN, MBN_ALP)
                for part in (
                    more((name, _COLUMNS[30]), (name, _COLUMNS[5])),
                    within((name, _COLUMNS[30]), (name, _COLUMNS[5]), 8),
                )
            ),
        ),
    ),
    needs=NEEDS,
)
def table4(scale: Scale) -> Sequence[Job]:
    """Train with PGD-30 to PGD-5, steps of 1, 1, 2 and 4/255; test with PGD-2000.

    The paper's rows and columns change places, and its differences are accuracies. At
    reduced the attacks are of 5, 3, 2 and 1 steps.
    """
    names = (ADVERSARIAL, MBN) if scale == "smoke" else _ALL
    steps = (30, 5) if scale == "smoke" else tuple(_COLUMNS)
    return [
        point(scale, name, _COLUMNS[count], recipe(scale, name, steps=count))
        for name in names
        for count in steps
    ]
