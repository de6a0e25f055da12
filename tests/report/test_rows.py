"""The comparison as plain data: means, errors and intervals by hand."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advnorm.records import Accuracy
from advnorm.report import TableCell, comparison_rows
from advnorm.report.rows import eps_label

EPS = 8 / 255


def test_seeds_of_one_recipe_are_one_row_with_mean_and_standard_error(maker):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in (0, 1, 2)]
    for run, correct in zip(runs, (700, 720, 740), strict=True):
        maker.result(run, "clean", correct)
    (row,) = comparison_rows(runs)
    assert (row.name, row.norm, row.objective, row.model) == (
        "digits",
        "batch",
        "madry",
        "cnn",
    )
    assert row.seeds == ("0", "1", "2")
    cell = row.cells["clean"]
    assert cell.fraction == pytest.approx(0.72)
    assert cell.error == pytest.approx(0.02 / sqrt(3))
    assert str(cell) == "72.0% ± 1.2"
    assert [member.name for member in row.members] == ["r0", "r1", "r2"]
    assert [member.cells["clean"].fraction for member in row.members] == [0.70, 0.72, 0.74]


def test_seeds_are_in_order(maker):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in (10, 2, 0)]
    (row,) = comparison_rows(runs)
    assert row.seeds == ("0", "2", "10")


def test_one_seed_has_wilsons_interval_and_no_error(maker):
    run = maker.run("only")
    maker.result(run, "clean", 713)
    (row,) = comparison_rows([run])
    cell = row.cells["clean"]
    assert cell.error is None and cell.n == 1000 and row.name == "only"
    assert cell.interval == Accuracy(correct=713, n=1000).interval
    assert str(cell) == "71.3% [68.4, 74.0]"


def test_interval_over_two_seeds_by_hand():
    # So large a sample leaves the seeds' part.
    cell = TableCell(fractions=(0.49, 0.51), n=10**8)
    assert cell.interval[1] - 0.5 == pytest.approx(12.7062 * 0.01, rel=1e-3)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_interval_holds_the_rate_and_stays_in_range(counts):
    cell = TableCell(fractions=tuple(count / 50 for count in counts), n=50)
    low, high = cell.interval
    assert 0 <= low <= cell.fraction + 1e-12 and cell.fraction - 1e-12 <= high <= 1


def test_runs_that_differ_in_anything_but_the_seed_are_rows_of_their_own(maker):
    first = maker.run("a", recipe={"name": "x"})
    other_seed = maker.run("b", seed=7, recipe={"name": "y"})
    other_norm = maker.run("c", norm="group")
    other_width = maker.run("d", recipe={"model": {"name": "cnn", "width": 32}})
    rows = comparison_rows([first, other_seed, other_norm, other_width])
    assert [row.seeds for row in rows] == [("0", "7"), ("0",), ("0",)]
    assert [row.label for row in rows] == [
        "batch · madry · cnn · model.width 16",
        "group · madry · cnn",
        "batch · madry · cnn · model.width 32",
    ]


def test_columns_go_clean_then_no_adversary_then_norm_attack_in_number_order_and_radius(
    maker,
):
    run, other = maker.run("a"), maker.run("b", norm="group")
    maker.result(run, "pgd-100", 1, eps=EPS)
    maker.result(run, "pgd-20", 1, eps=EPS)
    maker.result(run, "pgd-20", 1, eps=EPS / 2)
    maker.result(run, "fgsm", 1, eps=0.5, norm="l2")
    maker.result(run, "blur", 1)
    maker.result(other, "clean", 1)
    rows = comparison_rows([run, other])
    keys = ["clean", "blur", "fgsm_l2_0.5", "pgd-20_linf_0.01569", "pgd-20_linf_0.03137"]
    for row in rows:
        assert list(row.cells) == [*keys, "pgd-100_linf_0.03137"]
    assert rows[0].cells["clean"] is None


def test_a_seed_without_the_result_is_left_out_of_the_mean(maker):
    done, not_yet = maker.run("a", seed=0), maker.run("b", seed=1)
    maker.result(done, "clean", 900)
    (row,) = comparison_rows([done, not_yet])
    assert row.cells["clean"].fractions == (0.9,) and row.cells["clean"].error is None


def test_flags_and_alarms_are_kept_once(maker):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in (0, 1)]
    for run in runs:
        maker.result(run, "clean", 900, flags=("doubtful",))
        maker.train(run, epochs=3, alarms=("one class only",))
    (row,) = comparison_rows(runs)
    assert row.cells["clean"].flags == ("doubtful",)
    assert row.alarms == ("one class only (epoch 2)",)


def test_a_repeated_seed_and_a_repeated_folder_count_once(maker):
    first, again = maker.run("a"), maker.run("b")
    maker.result(first, "clean", 900)
    maker.result(again, "clean", 100)
    (row,) = comparison_rows([first, again, first])
    assert row.cells["clean"].fractions == (0.9,)
    assert [member.name for member in row.members] == ["a", "b"]


def test_no_samples_are_said_and_not_divided_by(maker):
    run = maker.run("a")
    maker.result(run, "clean", 0, n=0)
    (row,) = comparison_rows([run])
    assert str(row.cells["clean"]) == "no samples"


def test_no_run_is_refused():
    with pytest.raises(ValueError, match="name at least one run folder"):
        comparison_rows([])


@pytest.mark.parametrize(
    "eps, label", [(8 / 255, "8/255"), (0.2, "0.2"), (0.3, "0.3"), (1.0, "1")]
)
def test_radii_are_named_as_people_write_them(eps, label):
    assert eps_label(eps) == label


def test_branches_and_other_data_are_columns_of_their_own(maker):
    run = maker.run("a")
    for branch in ("worst", "clean", "adversarial"):
        maker.result(run, "clean", 9, branch=branch)
        maker.result(run, "pgd-20", 1, eps=EPS, branch=branch)
    maker.result(run, "clean", 5, branch="worst", data="mnist-c:fog", other=True)
    (row,) = comparison_rows([run])
    names = ("adversarial", "clean", "worst")
    own = [
        f"{name}@{branch}" for name in ("clean", "pgd-20_linf_0.03137") for branch in names
    ]
    assert list(row.cells) == [*own, "clean@worst~mnist-c-fog"]


@pytest.mark.parametrize(
    "more, said",
    [
        ({}, ""),
        (
            {"weights": "best-00000007 sha256:ff"},
            "weights is best-00000009 sha256:00 or best-00000007 sha256:ff",
        ),
        ({"weights": "state-00000007 sha256:ff"}, "weights is best or state"),
        ({"n": 500}, "n is 1000 or 500"),
        ({"weights": "state-1", "n": 500}, "weights is best or state, n is 1000 or 500"),
        ({"n": 500, "data": "mnist-c:fog", "other": True}, ""),
    ],
)
def test_a_row_says_whether_its_cells_were_measured_alike(maker, more, said):
    run = maker.run("a")
    maker.result(run, "clean", 100, weights="best-00000009 sha256:00")
    weights = {"weights": "best-00000009 sha256:00"} | more
    maker.result(run, "pgd-20", 1, eps=EPS, **weights)
    (row,) = comparison_rows([run])
    assert row.inconsistency == (
        f"these results were measured differently: {said}" if said else ""
    )


def test_a_row_over_seeds_compares_the_seeds_too(maker):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in (0, 1)]
    for run, n in zip(runs, (100, 200), strict=True):
        maker.result(run, "clean", 50, n=n)
    (row,) = comparison_rows(runs)
    assert "n is 100 or 200" in row.inconsistency
    assert [member.inconsistency for member in row.members] == ["", ""]
