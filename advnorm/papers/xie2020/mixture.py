"""Norms that keep the two domains apart (section 4.2)."""

from collections.abc import Mapping, Sequence

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, Part, above, below, more, within
from advnorm.papers.numbers import CLEAN as CLEAN_ACCURACY
from advnorm.papers.numbers import AnswerNumber, ResultNumber
from advnorm.papers.xie2020.clean_share import flat
from advnorm.papers.xie2020.setting import (
    ADVERSARIAL,
    ALP,
    ATTACKS,
    CLEAN,
    GN,
    MBN,
    MBN_ALP,
    MIXED,
    NEEDS,
    STEPS,
    job,
    line,
    recipe,
)
from advnorm.papers.xie2020.table import at_steps, hardest
from advnorm.recipe import EvaluationSpec, Recipe
from advnorm.records import Scale


@artefact(
    "xie2020/figure3",
    "Accuracy over the steps of PGD: norms that keep the domains apart",
    columns=tuple(map(str, STEPS)),
    published={row: at_steps(row) for row in (MBN, MBN_ALP, GN, MIXED, ALP)},
    claims=(
        flat(MBN, MIXED),
        flat(MBN_ALP, ALP),
        flat(GN, MIXED),
        *(
            Claim(
                "on the same images the adversarial branch is more robust than one batch "
                f"norm{note}",
                (more((branch, "2000"), (whole, "2000")),),
            )
            for note, branch, whole in (("", MBN, MIXED), (", with ALP", MBN_ALP, ALP))
        ),
        Claim(
            "on the same images group norm is more robust than batch norm",
            (more((GN, "2000"), (MIXED, "2000")),),
        ),
    ),
    x="PGD steps",
    y="accuracy, %",
    needs=NEEDS,
)
def figure3(scale: Scale) -> Sequence[Job]:
    """Mixture batch norm with and without logit pairing, attacked on its branch.

    Group norm is of the same section's text and Table 7. Batch norm on the same images,
    which is in Figure 2, stands beside them.
    """
    names = (MBN, GN) if scale == "smoke" else (MBN, MBN_ALP, GN, MIXED, ALP)
    return [line(scale, name, recipe(scale, name)) for name in names]


def _clean_branch(name: str) -> str:
    return name.replace("MBN_adv", "MBN_clean")


def _close(column: str, one: str, other: str, *, by: float) -> tuple[Part, Part]:
    """Claim that two rows are less than ``by`` apart."""
    first, second = (one, column), (other, column)
    return within(first, second, by), within(second, first, by)


TO_CLEAN = f"{ADVERSARIAL}, norms tuned on clean images"
TO_ADVERSARIAL = f"{CLEAN}, norms tuned on adversarial images"


def _tuned(scale: Scale) -> list[Job]:
    """Return section 4.4's rows: two runs whose norms are tuned on the other domain."""
    steps, size = ATTACKS[scale][30]
    attack = f"pgd-{steps}+random+clean=0.2+step={size:.6g}"
    count = {"full": 2000, "reduced": 200, "smoke": 5}[scale]
    options: dict[str, object] = {
        "attack": attack,
        "test_attack": f"pgd-{count}+random+step=1/255",
        "tuned_on": {"full": 50_000, "reduced": 10_000, "smoke": 40}[scale],
        "batch_size": 20 if scale == "smoke" else 100,
    }
    rows = {
        TO_CLEAN: (ADVERSARIAL, "clean", {"clean": "clean, tuned"}),
        TO_ADVERSARIAL: (CLEAN, "adversarial", {"PGD-2000": "attacked, tuned"}),
    }
    return [
        Job(
            row,
            recipe(scale, name),
            {column: AnswerNumber("tuned_norms", key) for column, key in numbers.items()},
            {"tuned_norms": {**options, "domain": domain}},
            samples={"full": 5000, "reduced": 2000, "smoke": 10}[scale],
            evaluations=(),
        )
        for row, (name, domain, numbers) in rows.items()
    ]


def _as_good(name: str) -> tuple[Claim, ...]:
    """Return the claims about the two branches of one mixture model."""
    note, by = (", with ALP", 5) if name == MBN_ALP else ("", 2)
    clean = (_clean_branch(name), "clean")
    return (
        Claim(
            "by the clean branch, clean accuracy is within 2 points of clean "
            f"training{note}",
            (within((CLEAN, "clean"), clean, 2),),
        ),
        Claim(
            "by the adversarial branch, robustness is nearly that of adversarial images "
            f"alone (asked for: within {by} points){note}",
            (within((ADVERSARIAL, "PGD-2000"), (name, "PGD-2000"), by),),
        ),
        Claim(
            f"the clean branch is better on clean images than the adversarial one{note}",
            (more(clean, (name, "clean")),),
        ),
    )


@artefact(
    "xie2020/table1",
    "Each branch of the mixture norm is as good as training on its domain alone",
    columns=("clean", "PGD-2000"),
    published={
        TO_CLEAN: (73.0, None),
        TO_ADVERSARIAL: (None, 0.0),
        CLEAN: (78.9, None),
        _clean_branch(MBN): (79.3, None),
        _clean_branch(MBN_ALP): (78.4, None),
        ADVERSARIAL: (62.3, hardest(ADVERSARIAL)),
        MBN: (64.4, hardest(MBN)),
        MBN_ALP: (65.9, hardest(MBN_ALP)),
    },
    claims=(
        *(claim for name in (MBN, MBN_ALP) for claim in _as_good(name)),
        Claim(
            "filters of adversarial images serve clean ones: tuning the norms alone on "
            "these adds 10.7 points (asked for: half)",
            (more((TO_CLEAN, "clean"), (ADVERSARIAL, "clean"), by=5),),
        ),
        Claim(
            "filters of clean images do not serve adversarial ones: with the norms tuned "
            "on these nothing is left under PGD-2000 (asked for: under 2%)",
            (below(TO_ADVERSARIAL, "PGD-2000", 2),),
        ),
        Claim(
            "whether ALP is applied makes a subtle difference (asked for: under 2 points "
            "clean, under 4 with PGD-2000)",
            (
                *_close("clean", _clean_branch(MBN), _clean_branch(MBN_ALP), by=2),
                *_close("PGD-2000", MBN, MBN_ALP, by=4),
            ),
        ),
    ),
    needs=NEEDS,
)
def table1(scale: Scale) -> Sequence[Job]:
    """Test one mixture model by either branch; the other rows are trained on one domain.

    The paper prints differences from the first row of each half; here are the accuracies.
    The clean accuracies of the last three rows are those of its Table 7. Models of clean
    images are not attacked. The first two rows are of section 4.4: the norms alone are
    tuned for two epochs of some of the training images ("a few epochs" there).
    """
    mixtures = (MBN,) if scale == "smoke" else (MBN, MBN_ALP)
    plain = EvaluationSpec(conditions=("clean",))
    by_clean_branch = {"clean": ResultNumber("clean", branch="clean")}
    return [
        *_tuned(scale),
        Job(CLEAN, recipe(scale, CLEAN, evaluation=plain), {"clean": CLEAN_ACCURACY}),
        *(
            Job(
                _clean_branch(name),
                recipe(scale, name, evaluation=plain).replace(
                    evaluation=EvaluationSpec(branch="clean")
                ),
                by_clean_branch,
            )
            for name in mixtures
        ),
        *(job(scale, name, recipe(scale, name)) for name in (ADVERSARIAL, *mixtures)),
    ]


_APART = {
    "variance, adv / clean": "variance, adversarial by clean (geometric mean)",
    "mean, adv - clean": "mean, adversarial above clean, in deviations",
    "|mean|, adv - clean": "mean, magnitude of adversarial above clean, in deviations",
    "means apart": "means of the branches apart, in deviations",
    "variances apart": "variances of the branches apart, relative",
    "batch mean from running": "batch from running mean, in deviations",
    "batch variance from running": "batch from running variance, relative",
}
"""What the question about branches answers; deviations are the adversarial branch's."""


_BATCHES = 20
"""Mini-batches of training images whose moments are compared with the running ones."""


def branches_job(scale: Scale, row: str, training: Recipe, names: Mapping[str, str]) -> Job:
    """Return a row of numbers, by column, of the question about branches.

    It draws 20 channels under the attack of training; at full of ResNet-152's res_3.
    """
    spec = training.attack
    attack = f"pgd-{spec.steps}+{spec.target}+clean={spec.clean_start:g}"
    attack += f"+step={spec.step_size:.6g}" if spec.step_size else ""
    options: dict[str, object] = {"channels": 20, "attack": attack}
    if scale != "smoke":
        options |= {"batches": _BATCHES, "split": "train"}
    if scale == "full":
        options["where"] = "blocks.6.norm2"
    return Job(
        row,
        training,
        {column: AnswerNumber("branches", name) for column, name in names.items()},
        {"branches": options},
        samples={"full": 32 * _BATCHES, "reduced": 100 * _BATCHES, "smoke": 20}[scale],
    )


@artefact(
    "xie2020/figure5",
    "Running statistics of the two branches, channel by channel",
    claims=(
        Claim(
            "clean and adversarial images have different statistics: their branches are "
            "further apart than a batch is from its own",
            (
                more((MBN, "means apart"), (MBN, "batch mean from running")),
                more((MBN, "variances apart"), (MBN, "batch variance from running")),
            ),
        ),
        Claim(
            "adversarial images have a larger running mean, with its sign",
            (above(MBN, "mean, adv - clean", 0),),
        ),
        Claim(
            "adversarial images have a larger running mean, by magnitude",
            (above(MBN, "|mean|, adv - clean", 0),),
        ),
        Claim(
            "adversarial images have a larger running variance",
            (above(MBN, "variance, adv / clean", 1),),
        ),
    ),
    shown=("branches",),
    needs=NEEDS,
)
def figure5(scale: Scale) -> Sequence[Job]:
    """Draw 20 channels of one norm; the numbers are means over all channels and norms.

    The paper draws a block of res_3 and does not say which norm: ours is the middle one of
    that stage. "Larger" may be meant with the sign or by magnitude: both are claims. The 20
    batches are of training images, others for each seed.
    """
    names = (MBN,) if scale == "smoke" else (MBN, MBN_ALP)
    return [branches_job(scale, name, recipe(scale, name), _APART) for name in names]
