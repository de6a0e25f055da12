"""The comparison for a terminal."""

import pytest

from advnorm.report import comparison_text

EPS = 8 / 255


def test_two_groups_by_hand(maker):
    one, two, other = (
        maker.run("a", seed=0),
        maker.run("b", seed=1),
        maker.run("c", norm="none"),
    )
    maker.result(one, "clean", 700)
    maker.result(two, "clean", 720)
    maker.result(other, "clean", 713)
    maker.result(other, "pgd-10", 100, eps=EPS, flags=("doubtful",))
    maker.train(one, epochs=1, alarms=("one class",))
    lines = comparison_text([one, two, other]).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "batch none",
        "madry madry",
        "cnn cnn",
        "clean (n=1000) 71.0% ± 1.0 71.3% [68.4, 74.0]",
        "pgd-10_linf_0.03137 (n=1000) - 10.0% [8.3, 12.0] *2",
        "in training *1 -",
        "",
        "*1 one class (epoch 0)",
        "*2 doubtful",
    ]
    # columns end flush right
    assert len({len(line) for line in lines[:6]}) == 1


def test_many_groups_go_into_blocks_that_fit(maker):
    runs = [maker.run(f"r{i}", norm=f"n{i}") for i in range(12)]
    for run in runs:
        maker.result(run, "clean", 713)
    text = comparison_text(runs)
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("71.3% [68.4, 74.0]") == 12 and text.count("clean (n=1000)") == 3
    assert "in training" not in text


def test_runs_without_results_are_named_still(maker):
    assert comparison_text([maker.run("a")]).split() == ["batch", "madry", "cnn"]


def test_no_run_is_refused():
    with pytest.raises(ValueError, match="no run to report on"):
        comparison_text([])


def test_branches_are_named(maker):
    lines = comparison_text(maker.branches()).splitlines()
    numbers = {" ".join(line.split()[:5]): line.split()[-3:] for line in lines}
    assert numbers["clean, clean branch (n=100) -"] == ["95.0%", "[88.8,", "97.8]"]
    assert "pgd-10_linf_0.03137, worst branch (n=100) -" in numbers
    assert "clean (n=100) 80.0% [71.1, 86.7]" in numbers and "*" not in "".join(lines)


def test_a_column_and_a_row_that_were_not_measured_alike_are_marked(maker):
    one, other = maker.run("a"), maker.run("b", norm="group")
    maker.result(one, "clean", 500)
    maker.result(one, "pgd-10", 500, eps=EPS)
    maker.result(other, "clean", 50, n=100)
    maker.result(other, "pgd-10", 500, eps=EPS, weights="state-7 sha256:ff")
    lines = [" ".join(line.split()) for line in comparison_text([one, other]).splitlines()]
    assert lines[0] == "batch group *3"
    assert lines[3].startswith("clean (n=100..1000) *1 50.0%")
    assert lines[4].startswith("pgd-10_linf_0.03137 (n=1000) *2 50.0%")
    assert lines[6:] == [
        "*1 the runs were measured differently: n is 1000 or 100",
        "*2 the runs were measured differently: weights is best or state",
        "*3 these results were measured differently: weights is best or state, "
        "n is 100 or 1000",
    ]
