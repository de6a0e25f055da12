"""Claims: comparisons by t-tests over seeds, and only by numbers that are there."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from advnorm.papers.claims import (
    Claim,
    PartVerdict,
    above,
    below,
    deciding,
    judge,
    more,
    reason,
    rising,
    wider,
    within,
    worst,
)
from advnorm.records import Measured, Published


def table(**rows):
    return {row: {"x": Measured(values=tuple(values))} for row, values in rows.items()}


VERDICTS = ("holds", "does not hold", "cannot be told")
FAR = table(a=(9.0, 10.0, 11.0), b=(1.0, 3.0, 2.0))  # standard errors 1 / sqrt(3)


def verdict_on(part, numbers=FAR):
    """Return the verdict on a part as the only one of its claim."""
    return judge([part(numbers)])[0].verdict


@pytest.mark.parametrize(
    ("part", "verdict"),
    [
        (above("a", "x", 7.5), "holds"),  # 2.5 is more than 4.303 * 0.577 = 2.484
        (above("a", "x", 7.6), "cannot be told"),
        (above("a", "x", 12.5), "does not hold"),
        (below("a", "x", 12.5), "holds"),
        (below("a", "x", 12.4), "cannot be told"),
        (below("a", "x", 7.5), "does not hold"),
        (more(("a", "x"), ("b", "x")), "holds"),
        (more(("b", "x"), ("a", "x")), "does not hold"),
        # seed by seed 8, 7, 9: more than 8 - 2.484 and less than 8 + 2.484
        (more(("a", "x"), ("b", "x"), by=5.5), "holds"),
        (more(("a", "x"), ("b", "x"), by=5.6), "cannot be told"),
        (more(("a", "x"), ("b", "x"), by=10.5), "does not hold"),
        (within(("a", "x"), ("b", "x"), 10.5), "holds"),
        (within(("a", "x"), ("b", "x"), 10.4), "cannot be told"),
        (within(("a", "x"), ("b", "x"), 5.5), "does not hold"),
        (within(("b", "x"), ("a", "x"), 0), "holds"),
        (within(("a", "x"), ("a", "y"), 1), "cannot be told"),
        (above("c", "x", 0), "cannot be told"),
        (more(("a", "x"), ("a", "y")), "cannot be told"),
    ],
)
def test_the_95_percent_interval_of_the_seeds_decides(part, verdict):
    assert verdict_on(part) == verdict


def measured(*values, seeds=(), n=None):
    return Measured(values=values, seeds=seeds, n=n)


def test_numbers_of_the_same_seeds_are_compared_seed_by_seed():
    """Differences 1, 2, 3 have the error 1 / sqrt(3), whatever the seeds do by themselves."""
    low, high = (0.0, 50.0, 100.0), (1.0, 52.0, 103.0)
    numbers = {"a": {"x": measured(*low)}, "b": {"x": measured(*high)}}
    part = more(("b", "x"), ("a", "x"))(numbers)
    assert part.p == pytest.approx(stats.ttest_rel(high, low).pvalue)
    assert verdict_on(more(("b", "x"), ("a", "x"), by=-0.5), numbers) == "holds"
    assert verdict_on(within(("b", "x"), ("a", "x"), 4.5), numbers) == "holds"
    others = numbers | {"b": {"x": measured(*high, seeds=(1, 2, 3))}}
    apart = more(("b", "x"), ("a", "x"))(others)
    welch = stats.ttest_ind(high, low, equal_var=False)
    assert apart.p == pytest.approx(welch.pvalue)


@given(
    st.lists(st.floats(-9, 9), min_size=3, max_size=6),
    st.lists(st.floats(-9, 9), min_size=3, max_size=6),
    st.floats(-3, 3),
)
def test_p_values_are_those_of_scipy(first, second, limit):
    if min(np.std(first), np.std(second)) < 1e-3:
        return
    numbers = {
        "a": {"x": measured(*first)},
        "b": {"x": measured(*second, seeds=tuple(range(9, 9 + len(second))))},
    }
    one = stats.ttest_1samp(first, limit).pvalue
    assert above("a", "x", limit)(numbers).p == pytest.approx(one, abs=1e-12)
    shifted = np.array(second) + limit
    two = stats.ttest_ind(first, shifted, equal_var=False).pvalue
    assert more(("a", "x"), ("b", "x"), by=limit)(numbers).p == pytest.approx(two)


def test_accuracies_that_agree_by_chance_are_not_certain():
    """Three accuracies of 10 samples that are all 50% have the error of rounding, 1.67."""
    exact = {"a": {"x": measured(50.0, 50.0, 50.0)}}
    of_ten = {"a": {"x": measured(50.0, 50.0, 50.0, n=10)}}
    assert verdict_on(above("a", "x", 45.0), exact) == "holds"
    assert verdict_on(above("a", "x", 45.0), of_ten) == "cannot be told"
    assert verdict_on(above("a", "x", 42.0), of_ten) == "holds"  # 4.303 * 1.667 = 7.17
    assert verdict_on(above("a", "x", 50.0), exact) == "cannot be told"


@pytest.mark.parametrize("count", [3, 5, 10])
@pytest.mark.parametrize("parts", [1, 9])
@pytest.mark.parametrize("paired", [True, False])
def test_at_most_5_percent_of_claims_of_equal_numbers_are_decided(count, parts, paired):
    """Simulated; with room for three standard errors of the simulated rate."""
    random, trials = np.random.default_rng(count), 2000 if parts == 1 else 500
    rows = [f"r{n}" for n in range(parts)]
    claim = Claim("", tuple(more((row, "x"), (row, "y")) for row in rows))
    other = tuple(range(100, 100 + count)) if not paired else ()
    deviations, decided = (1.0, 3.0), 0
    for draws in random.normal(size=(trials, parts, 2, count)):
        both = [[s * v for v, s in zip(pair, deviations, strict=True)] for pair in draws]
        numbers = {
            row: {
                "x": Measured.model_construct(values=tuple(x), seeds=()),
                "y": Measured.model_construct(values=tuple(y), seeds=other),
            }
            for row, (x, y) in zip(rows, both, strict=True)
        }
        verdicts = {part.verdict for part in claim.check_parts(numbers)}
        decided += verdicts != {"cannot be told"}
    assert decided / trials <= 0.05 + 3 * sqrt(0.05 * 0.95 / trials)
    assert decided > 0.01 * trials  # a rule that decides nothing is none


def test_two_seeds_tell_nothing():
    numbers = table(a=(9.0, 9.1), b=(1.0, 1.1))
    assert verdict_on(more(("a", "x"), ("b", "x")), numbers) == "cannot be told"
    assert verdict_on(above("a", "x", 0), numbers) == "cannot be told"
    mixed = table(a=(9.0, 9.1, 9.2), b=(1.0, 1.1))
    assert verdict_on(more(("a", "x"), ("b", "x")), mixed) == "cannot be told"


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        ((9.0, 11.0, 10.0), "holds"),  # 8 against 4
        ((4.0, 6.0, 8.0), "cannot be told"),
        ((1.0, 2.0, 4.0), "does not hold"),
    ],
)
def test_gains_are_compared_seed_by_seed(gain, verdict):
    numbers = table(a=gain, b=(1.0, 2.0, 3.0), c=(5.0, 5.0, 5.0), d=(1.0, 1.0, 1.0))
    part = wider((("a", "x"), ("b", "x")), (("c", "x"), ("d", "x")))
    assert verdict_on(part, numbers) == verdict
    mirrored = wider((("c", "x"), ("d", "x")), (("a", "x"), ("b", "x")))
    opposite = {"holds": "does not hold", "does not hold": "holds"}
    assert verdict_on(mirrored, numbers) == opposite.get(verdict, verdict)
    for name in "abcd":
        fewer = {row: cells for row, cells in numbers.items() if row != name}
        assert part(fewer).why == f"{name}, x: not measured"


def test_one_seed_tells_nothing_and_smoke_neither():
    claim = Claim("a is large", (above("a", "x", 0),))
    assert claim.check(table(a=(5.0,)), "full").verdict == "cannot be told"
    assert claim.check(FAR, "smoke").verdict == "cannot be told"
    assert claim.check(FAR, "reduced").verdict == "holds"


def test_a_claim_holds_when_all_its_parts_do():
    good, bad, open_ = above("a", "x", 0), above("b", "x", 9), above("a", "x", 10)
    assert Claim("", (good, good)).check(FAR, "full").verdict == "holds"
    assert Claim("", (good, open_)).check(FAR, "full").verdict == "cannot be told"
    assert Claim("", (open_, bad)).check(FAR, "full").verdict == "does not hold"


def test_rising_compares_neighbours():
    numbers = {"r": {str(i): Measured(values=(i, i + 0.1, i)) for i in (1, 2, 3)}}
    up = Claim("", rising("r", ("1", "2", "3"))).check(numbers, "full")
    down = Claim("", rising("r", ("1", "2", "3"), down=True)).check(numbers, "full")
    assert (up.verdict, down.verdict) == ("holds", "does not hold")


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6), st.floats(-1e3, 1e3))
def test_above_and_below_never_both_hold(values, limit):
    numbers = table(a=values)
    parts = {
        verdict_on(above("a", "x", limit), numbers),
        verdict_on(below("a", "x", limit), numbers),
    }
    assert parts in ({"holds", "does not hold"}, {"cannot be told"})


@given(st.lists(st.sampled_from(VERDICTS), min_size=1))
def test_the_worst_part_decides(verdicts):
    expected = "holds" if set(verdicts) == {"holds"} else "cannot be told"
    expected = "does not hold" if "does not hold" in verdicts else expected
    assert worst([PartVerdict(verdict, "") for verdict in verdicts]) == expected


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (above("a", "x", 8.8), "a, x: 10 ± 0.58 > 8.8"),
        (below("a", "x", 11.2), "a, x: 10 ± 0.58 < 11.2"),
        (more(("a", "x"), ("b", "x")), "a, x: 10 ± 0.58 > b, x: 2 ± 0.58"),
        (more(("a", "x"), ("b", "x"), by=5), "a, x: 10 ± 0.58 > b, x: 2 ± 0.58 + 5"),
        (within(("a", "x"), ("b", "x"), 9), "a, x: 10 ± 0.58 < b, x: 2 ± 0.58 + 9"),
        (
            wider((("a", "x"), ("b", "x")), (("b", "x"), ("a", "x"))),
            "8 (a, x: 10 ± 0.58 - b, x: 2 ± 0.58) > -8 (b, x: 2 ± 0.58 - a, x: 10 ± 0.58)",
        ),
    ],
)
def test_a_part_is_told_as_the_inequality_that_is_claimed(part, text):
    assert part(FAR).why == text


def test_the_reason_of_a_long_claim_shows_what_decides():
    parts = [above("a", "x", limit) for limit in (0, 2, 10, 10.1, 1)]
    checked = Claim("", tuple(parts)).check(FAR, "full")
    assert checked.why == (
        "? a, x: 10 ± 0.58 > 10; ? a, x: 10 ± 0.58 > 10.1 "
        "(of 5 comparisons 3 hold, 2 cannot be told)"
    )
    four = (parts[0], parts[4], parts[1], above("a", "x", -1))
    result = Claim("", four).check(FAR, "full")
    assert result.why.startswith("✓ a, x: 10 ± 0.58 > 0; ✓ a, x: 10 ± 0.58 > 1; ✓")
    assert "> -1;" not in result.why  # the surest is left out


def test_p_values_are_corrected_for_the_comparisons_of_the_claim_that_can_be_tested():
    """7.5 is below the interval of one comparison, not of two; a missing one is no test."""
    part, other, missing = above("a", "x", 7.5), above("a", "x", 9), above("c", "x", 0)
    single, _ = judge([part(FAR), missing(FAR)])
    assert single.verdict == "holds" and single.p == part(FAR).p
    twice, _ = judge([part(FAR), other(FAR)])
    assert twice.verdict == "cannot be told" and twice.p == 2 * part(FAR).p


@given(
    st.lists(
        st.builds(PartVerdict, st.sampled_from(VERDICTS), st.just("w"), st.floats(0, 1))
    )
)
def test_what_is_shown_has_the_verdict_of_all_and_is_as_close_as_any(parts):
    shown = deciding(parts)
    assert shown == sorted(set(shown))
    if len(parts) <= 3:
        assert shown == list(range(len(parts)))
        return
    left = [n for n in range(len(parts)) if n not in shown]
    assert shown and all(parts[n].verdict == worst(parts) for n in shown)
    for n in left:
        if parts[n].verdict == worst(parts):
            assert len(shown) == 3 and parts[n].p <= min(parts[m].p for m in shown)
    assert f"of {len(parts)} comparisons" in reason(parts)


@pytest.mark.parametrize(
    ("scales", "scale", "applicable"),
    [(("full",), "reduced", False), (("full",), "full", True), (("full",), "smoke", False)],
)
def test_a_claim_says_whether_it_is_about_the_scale(scales, scale, applicable):
    claim = Claim("a is large", (above("a", "x", 0),), scales)
    assert claim.check(FAR, scale).applicable is applicable


@pytest.mark.parametrize(
    ("theirs", "apart"), [(10.0, False), (12.4, False), (12.5, True), (7.5, True)]
)
def test_a_number_differs_from_the_papers_outside_of_its_interval(theirs, apart):
    ours = Measured(values=(9.0, 10.0, 11.0), published=Published(value=theirs))
    assert ours.apart is apart
    wide = Measured(values=(9.0, 10.0, 11.0), published=Published(value=theirs, error=5.0))
    assert not wide.apart
    two = Measured(values=(9.0, 9.1), published=Published(value=20.0))
    assert not two.apart  # of two seeds nothing is said


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_what_is_not_finite_tells_nothing_and_survives_its_record(bad):
    cell = Measured(values=(1.0, bad), published=Published(value=1.0))
    assert cell.error is None and not cell.apart
    again = Measured.model_validate_json(cell.model_dump_json())
    assert str(again.values) == str(cell.values)
    assert verdict_on(above("a", "x", 0), {"a": {"x": cell}}) == "cannot be told"
