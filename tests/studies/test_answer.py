"""Paired comparisons of a study: closed forms, an independent reference, the null."""

import numpy as np
import pytest
from scipy import stats

from advnorm.records import Study, StudyRow
from advnorm.studies.answer import (
    compare_rows,
    number_of,
    pareto_front,
    with_answer,
)


def row(robust, clean=None, seeds=None, n=None, flags=()):
    seeds = tuple(range(len(robust))) if seeds is None else seeds
    numbers = {"robust": number_of(robust, n)}
    if clean is not None:
        numbers["clean"] = number_of(clean, n)
    return StudyRow(settings={}, seeds=seeds, numbers=numbers, flags=flags)


def study_of(rows):
    return Study(
        recipe="x",
        over={"norm.name": tuple(rows)},
        seeds=3,
        epochs=1,
        headline="robust",
        threat="linf, eps 0.1",
        columns=("clean", "robust"),
        rows=rows,
    )


def test_a_pair_has_the_p_value_and_the_interval_of_the_paired_t_test():
    a, b = [90.0, 91.5, 89.0, 92.0], [88.0, 90.5, 88.5, 89.0]
    (pair,) = compare_rows({"a": row(a), "b": row(b)}, "robust")
    wanted = stats.ttest_rel(a, b)
    assert pair.p == pytest.approx(wanted.pvalue)
    assert (pair.low, pair.high) == pytest.approx(tuple(wanted.confidence_interval(0.95)))


def test_seeds_are_paired_by_their_number_not_by_their_place():
    a = row([90.0, 80.0, 70.0], seeds=(0, 1, 2))
    b = row([69.0, 89.5, 79.2], seeds=(2, 0, 1))
    (pair,) = compare_rows({"a": a, "b": b}, "robust")
    assert pair.difference == pytest.approx((0.5 + 0.8 + 1.0) / 3)
    assert pair.decided


def test_two_seeds_decide_nothing():
    rows = {"a": row([99.0, 99.1]), "b": row([10.0, 10.2])}
    assert compare_rows(rows, "robust") == ()
    assert "fewer than 3 seeds" in with_answer(study_of(rows)).answer[1]


def test_differences_that_agree_by_chance_are_not_certain():
    """Ten samples: 0.0 and 10.0 points are neighbours, and three equal gaps happen."""
    a, b = row([60.0] * 3, n=10), row([50.0] * 3, n=10)
    (pair,) = compare_rows({"a": a, "b": b}, "robust")
    assert pair.p > 0.01


def test_equal_accuracies_have_the_interval_of_their_rounding():
    number = number_of([90.0] * 3, 100)  # rounding to 1 point has the deviation 1/sqrt(12)
    half = stats.t.ppf(0.975, 2) / 12**0.5 / 3**0.5
    assert (number.low, number.high) == pytest.approx((90 - half, 90 + half))


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_under_the_null_a_study_decides_falsely_in_at_most_5_percent(seeds):
    """Six equal rows with effects of the seeds; the best is picked by its numbers."""
    random, wrong, count = np.random.default_rng(0), 0, 400
    for _ in range(count):
        shared = random.normal(80, 3, seeds)
        rows = {str(i): row(list(shared + random.normal(0, 1, seeds))) for i in range(6)}
        wrong += any(pair.decided for pair in compare_rows(rows, "robust"))
    assert wrong <= stats.binom.ppf(0.999, count, 0.05)
    assert stats.binom.ppf(0.999, count, 0.05) < 0.09 * count  # so that the test can fail


def test_the_front_holds_what_no_other_row_beats_in_both():
    rows = {
        "a": row([50.0], [90.0]),
        "b": row([60.0], [80.0]),
        "c": row([55.0], [80.0]),
        "d": row([50.0], [90.0]),
    }
    assert pareto_front(rows, ["clean", "robust"]) == ("a", "b", "d")


def test_a_flagged_row_is_not_chosen_however_robust_it_seems():
    rows = {
        "masked": row([99.0, 98.5, 99.2], [90.0] * 3, flags=("gradients are zero",)),
        "sound": row([50.0, 51.0, 49.5], [90.0] * 3),
    }
    study = with_answer(study_of(rows))
    assert study.choice == "sound"
    assert "'masked' has higher accuracy, but is flagged" in study.answer[1]


def test_a_flagged_row_hides_no_other_one():
    """It has more seeds, and would dominate the front."""
    rows = {
        "masked": row([99.0, 98.5, 99.2], [99.0] * 3, flags=("gradients are zero",)),
        "sound": row([50.0, 51.0], [90.0] * 2),
        "worse": row([40.0, 41.0], [80.0] * 2),
    }
    study = with_answer(study_of(rows))
    assert study.choice == "sound"
    assert study.pareto == ("sound",)


def test_one_row_alone_has_a_sentence():
    study = with_answer(study_of({"a": row([90.0, 91.0, 92.0], [95.0, 96.0, 97.0])}))
    assert study.answer[1] == "No other combination has finished, so nothing is decided."


def test_several_rows_have_verbs_in_the_plural():
    few = {label: row([50.0]) for label in "bc"}
    study = with_answer(study_of({"a": row([90.0, 91.0, 92.0]), **few}))
    assert "'b' and 'c' share fewer than 3 seeds" in study.answer[1]
    flagged = {label: row([90.0, 91.1, 92.0], flags=("x",)) for label in "bc"}
    study = with_answer(study_of({"a": row([10.0, 11.0, 12.1]), **flagged}))
    assert "'b' and 'c' have higher accuracy, but are flagged" in study.answer[1]
    assert "over 3 pairs" in study.answer[1]


def test_a_time_is_never_negative():
    assert number_of([1.0, 9.0], None).low < 0
    assert number_of([1.0, 9.0], None, least=0.0).low == 0


def test_the_answer_says_what_is_beaten_and_what_is_level():
    rows = {
        "a": row([90.0, 91.0, 92.0], [95.0, 96.0, 97.0]),
        "b": row([89.9, 91.3, 91.8], [95.0, 96.0, 97.0]),
        "c": row([50.0, 51.1, 52.0], [95.0, 96.0, 97.0]),
    }
    study = with_answer(study_of(rows))
    assert len(study.answer) == 2
    assert "90" in study.answer[0] or "91" in study.answer[0]
    assert "more robust than 'c'" in study.answer[1]
    assert "cannot be distinguished" in study.answer[1]
