"""xie2020: its tables agree with each other as typed; its artefacts share their runs."""

import pytest

from advnorm.evaluation.conditions import parse_conditions
from advnorm.papers import ARTEFACTS
from advnorm.papers.numbers import ResultNumber
from advnorm.papers.xie2020.setting import ADVERSARIAL, ALP, MBN, MBN_ALP, MIXED, recipe
from advnorm.papers.xie2020.table import BATCHES, STRATEGIES, hardest
from advnorm.recipe import differences
from advnorm.records import Measured
from advnorm.studies.trained_runs import training_settings
from advnorm.training.components import evaluation_threats

TABLE4 = {  # PGD-30, and the differences from it with PGD-20, PGD-10 and PGD-5
    ADVERSARIAL: (39.2, -1.0, -2.4, -3.3),
    MIXED: (20.9, -7.3, -17.7, -20.9),
    ALP: (23.0, -3.8, -19.7, -22.7),
    MBN: (38.3, -4.2, -5.5, -7.1),
    MBN_ALP: (35.3, 0.5, -1.4, -2.4),
}
TABLE5 = {  # what the star adds with PGD-5, PGD-10, PGD-20 and PGD-30
    ADVERSARIAL: (1.9, 2.4, 1.8, 3.0),
    MBN: (3.0, 3.3, 2.4, 1.6),
    MBN_ALP: (2.5, 2.8, 1.3, 2.8),
}
TABLE6 = {512: -0.2, 1024: 0.9, 2048: 1.1, 8192: -0.3}


@pytest.mark.parametrize("name", TABLE4)
def test_table_7_has_the_differences_of_table_4(name):
    first, *others = TABLE4[name]
    assert hardest(name) == first
    table_7 = [hardest(name, steps) - first for steps in (20, 10, 5)]
    assert table_7 == pytest.approx(others)


@pytest.mark.parametrize("name", TABLE5)
def test_table_7_has_the_differences_of_table_5(name):
    table_7 = [hardest(f"{name}*", n) - hardest(name, n) for n in (5, 10, 20, 30)]
    assert table_7 == pytest.approx(TABLE5[name])


def test_table_7_has_the_differences_of_table_6():
    table_7 = {
        size: line[-1] - hardest(f"{ADVERSARIAL}*") for size, line in BATCHES.items()
    }
    assert table_7 == pytest.approx(TABLE6)


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ((42.0, 41.9), "holds"),
        ((60.0, 70.0), "does not hold"),
        ((42.0, 44.0), "does not hold"),
        ((40.0, 42.0), "does not hold"),
    ],
)
def test_slightly_worse_is_neither_better_nor_much_worse(others, verdict):
    """Batches of 512 and 8,192 beside 42.2 with 4,096 (Table 6)."""
    sizes = zip(("4096", "512", "8192"), (42.2, *others), strict=True)
    numbers = {size: {"PGD-2000": Measured(values=(one,) * 3)} for size, one in sizes}
    (claim,) = [c for c in ARTEFACTS["xie2020/table6"].claims if "slightly" in c.text]
    assert claim.check(numbers, "full").verdict == verdict


def test_accuracy_falls_with_the_steps_of_pgd_in_every_line():
    for lines in STRATEGIES.values():
        for line in lines.values():
            assert list(line) == sorted(line, reverse=True)


@pytest.mark.parametrize("scale", ["reduced", "full"])
def test_a_star_is_running_statistics_in_the_last_epochs_alone(scale):
    changes = differences(recipe(scale, MBN), recipe(scale, f"{MBN}*"))
    assert changes == [f"norm.freeze_epochs: 0 -> {10 if scale == 'full' else 2}"]


FULL = [
    job
    for name in ARTEFACTS
    if name.startswith("xie2020/")
    for job in ARTEFACTS[name].jobs("full")
]


def test_at_full_32_images_are_normalized_together():
    for job in FULL:
        recipe = job.recipe
        for ranks in (1, 8, 16):
            pieces = recipe.optimizer.pieces(recipe.batch_size, ranks)
            assert recipe.batch_size == 32 * pieces * ranks
    shares = {job.recipe.objective.clean_share for job in FULL} - {None}
    assert sorted(round(32 * share) for share in shares) == [6, 13, 19, 26]


@pytest.mark.parametrize(("name", "column"), [("table7", "PGD-10"), ("figure2", "10")])
def test_at_full_ten_steps_reach_all_of_the_ball(name, column):
    """As in the pipeline: a step is eps over the number of steps at least."""
    job = ARTEFACTS[f"xie2020/{name}"].jobs("full")[0]
    full = job.recipe
    tests = parse_conditions(
        full.evaluation.conditions, evaluation_threats(full), full.threat.bounds
    )
    steps = {test.key: test.settings.get("step_size") for test in tests}
    assert steps.pop(job.numbers[column].key) == pytest.approx(1.6 / 255)
    longer = {
        number.key
        for where, number in job.numbers.items()
        if where not in ("clean", column)
    }
    assert [*{steps[key] for key in longer}] == [pytest.approx(1 / 255)]
    (reduced, *_) = ARTEFACTS[f"xie2020/{name}"].jobs("reduced")
    assert reduced.numbers[column].steps == 10


def test_the_artefacts_of_the_main_text_share_fifteen_runs():
    """Six shares, ALP, two mixtures, group norm, clean training, three stars, eps 8."""
    names = ("figure1", "figure2", "figure3", "figure5", "figure6", "table1", "table2")
    runs = {
        training_settings(job.recipe)
        for name in names
        for job in ARTEFACTS[f"xie2020/{name}"].jobs("reduced")
    }
    assert len(runs) == 15


def test_table_7_needs_no_run_of_its_own():
    others = {
        training_settings(job.recipe)
        for name in ARTEFACTS
        if name.startswith("xie2020/") and name != "xie2020/table7"
        for job in ARTEFACTS[name].jobs("full")
    }
    assert {
        training_settings(job.recipe) for job in ARTEFACTS["xie2020/table7"].jobs("full")
    } <= (others)


@pytest.mark.parametrize(
    ("falls", "verdict"),
    [((0.2, 6.0), "holds"), ((0.0, 0.0), "cannot be told"), ((6.0, 6.1), "does not hold")],
)
def test_a_flat_curve_says_something_beside_one_that_falls_alone(falls, verdict):
    rows = {}
    for row, fall in zip((ADVERSARIAL, MIXED), falls, strict=True):
        noise = (0.0, 0.01, -0.01)
        before = Measured(values=tuple(40 + x for x in noise))
        after = Measured(values=tuple(40 - fall - 3 * x for x in noise))
        rows[row] = {"500": before, "2000": after}
    (claim,) = [
        claim
        for claim in ARTEFACTS["xie2020/figure2"].claims
        if claim.text.startswith(f"the curve of {ADVERSARIAL} is asymptotic")
    ]
    assert claim.check(rows, "reduced").verdict == verdict


def test_at_reduced_200_steps_stand_for_2000_but_in_the_curves():
    for name in ("table1", "table2", "table4", "table7", "figure1"):
        for job in ARTEFACTS[f"xie2020/{name}"].jobs("reduced"):
            for column, number in job.numbers.items():
                if "PGD-2000" in (column, job.row) and isinstance(number, ResultNumber):
                    assert number.steps == 200 and job.recipe.evaluation.samples == 2000
    for job in ARTEFACTS["xie2020/figure2"].jobs("reduced"):
        assert [n.steps for n in job.numbers.values()] == [int(c) for c in job.numbers]
        assert job.recipe.evaluation.samples == 300


def test_batches_are_of_training_images_and_many():
    for name in ("figure5", "figure6"):
        for scale in ("reduced", "full"):
            for job in ARTEFACTS[f"xie2020/{name}"].jobs(scale):
                options = job.questions["branches"]
                assert options["split"] == "train" and options["batches"] == 20
                size = 32 if scale == "full" else job.recipe.batch_size
                assert job.samples == options["batches"] * size
