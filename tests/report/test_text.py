"""The comparison for a terminal."""

import pytest

from advnorm.report import terminal

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
    lines = terminal([one, two, other]).splitlines()
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
    text = terminal(runs)
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("71.3% [68.4, 74.0]") == 12 and text.count("clean (n=1000)") == 3
    assert "in training" not in text


def test_runs_without_results_are_named_still(maker):
    assert terminal([maker.run("a")]).split() == ["batch", "madry", "cnn"]


def test_no_run_is_refused():
    with pytest.raises(ValueError, match="no run to report on"):
        terminal([])
