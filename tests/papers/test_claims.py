"""Claims: parts by two standard errors, and only by numbers that are there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advnorm.papers.claims import (
    Claim,
    PartVerdict,
    above,
    below,
    deciding,
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
FAR = table(a=(9.0, 10.0, 11.0), b=(1.0, 2.0, 3.0))  # standard errors 1 / sqrt(3)


@pytest.mark.parametrize(
    ("part", "verdict"),
    [
        (above("a", "x", 8.8), "holds"),
        (above("a", "x", 8.9), "cannot be told"),  # 1.1 is less than 2 * 0.577
        (above("a", "x", 11.2), "does not hold"),
        (below("a", "x", 11.2), "holds"),
        (below("a", "x", 11.1), "cannot be told"),
        (below("a", "x", 8.8), "does not hold"),
        (more(("a", "x"), ("b", "x")), "holds"),
        (more(("b", "x"), ("a", "x")), "does not hold"),
        (more(("a", "x"), ("b", "x"), by=6.3), "holds"),  # 8 - 6.3 > 2 * sqrt(2/3)
        (more(("a", "x"), ("b", "x"), by=6.4), "cannot be told"),
        (more(("a", "x"), ("b", "x"), by=9.7), "does not hold"),
        (within(("a", "x"), ("b", "x"), 9.7), "holds"),
        (within(("a", "x"), ("b", "x"), 9.6), "cannot be told"),
        (within(("a", "x"), ("b", "x"), 6.3), "does not hold"),
        (within(("b", "x"), ("a", "x"), 0), "holds"),
        (within(("a", "x"), ("a", "y"), 1), "cannot be told"),
        (above("c", "x", 0), "cannot be told"),
        (more(("a", "x"), ("a", "y")), "cannot be told"),
    ],
)
def test_two_standard_errors_decide(part, verdict):
    assert part(FAR).verdict == verdict


def test_numbers_of_a_row_are_compared_seed_by_seed():
    """Differences 1, 2, 3 have the error 1 / sqrt(3), whatever the seeds do by themselves."""
    low, high = (0.0, 50.0, 100.0), (1.0, 52.0, 103.0)
    row = {"x": Measured(values=low), "y": Measured(values=high)}
    of_a_row, of_two = {"a": row}, {"a": {"x": row["x"]}, "b": {"y": row["y"]}}
    assert more(("a", "y"), ("a", "x"))(of_a_row).verdict == "holds"
    assert more(("a", "y"), ("a", "x"), by=0.9)(of_a_row).verdict == "cannot be told"
    assert within(("a", "y"), ("a", "x"), 3.2)(of_a_row).verdict == "holds"
    assert more(("b", "y"), ("a", "x"))(of_two).verdict == "cannot be told"


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        ((9.0, 10.0, 11.0), "holds"),  # 8 against 4, errors sqrt(2/3) and 0
        ((4.0, 5.0, 6.0), "cannot be told"),
        ((1.0, 2.0, 3.0), "does not hold"),
    ],
)
def test_gains_are_compared_with_the_errors_of_both(gain, verdict):
    numbers = table(a=gain, b=(1.0, 2.0, 3.0), c=(5.0, 5.0, 5.0), d=(1.0, 1.0, 1.0))
    part = wider((("a", "x"), ("b", "x")), (("c", "x"), ("d", "x")))
    assert part(numbers).verdict == verdict
    mirrored = wider((("c", "x"), ("d", "x")), (("a", "x"), ("b", "x")))
    opposite = {"holds": "does not hold", "does not hold": "holds"}
    assert mirrored(numbers).verdict == opposite.get(verdict, verdict)
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
    numbers = {"r": {str(i): Measured(values=(i, i + 0.1)) for i in (1, 2, 3)}}
    up = Claim("", rising("r", ("1", "2", "3"))).check(numbers, "full")
    down = Claim("", rising("r", ("1", "2", "3"), down=True)).check(numbers, "full")
    assert (up.verdict, down.verdict) == ("holds", "does not hold")


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6), st.floats(-1e3, 1e3))
def test_above_and_below_never_both_hold(values, limit):
    numbers = table(a=values)
    parts = {
        above("a", "x", limit)(numbers).verdict,
        below("a", "x", limit)(numbers).verdict,
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
    parts = [above("a", "x", limit) for limit in (0, 8.8, 10, 10.1, 5)]
    checked = Claim("", tuple(parts)).check(FAR, "full")
    assert checked.why == (
        "? a, x: 10 ± 0.58 > 10; ? a, x: 10 ± 0.58 > 10.1 "
        "(of 5 comparisons 3 hold, 2 cannot be told)"
    )
    result = Claim("", (parts[0], parts[4], parts[1], above("a", "x", 1))).check(
        FAR, "full"
    )
    assert result.why.startswith("✓ a, x: 10 ± 0.58 > 5; ✓ a, x: 10 ± 0.58 > 8.8; ✓")
    assert "> 0;" not in result.why  # the clearest is left out


def test_how_clear_a_comparison_is_counts_in_standard_errors():
    error = 3**-0.5
    assert above("a", "x", 8.8)(FAR).clear == pytest.approx(1.2 / error)
    assert more(("a", "x"), ("b", "x"), by=9)(FAR).clear == pytest.approx(
        1 / (2**0.5 * error)
    )
    assert above("a", "x", 0)(table(a=(1.0, 1.0))).clear == float("inf")
    assert above("a", "x", 0)(table(a=(1.0,))).clear == 0  # of one seed nothing is known


@given(
    st.lists(
        st.builds(PartVerdict, st.sampled_from(VERDICTS), st.just("w"), st.floats(0, 9))
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
            assert len(shown) == 3 and parts[n].clear >= max(parts[m].clear for m in shown)
    assert f"of {len(parts)} comparisons" in reason(parts)


@pytest.mark.parametrize(
    ("scales", "scale", "applicable"),
    [(("full",), "reduced", False), (("full",), "full", True), (("full",), "smoke", False)],
)
def test_a_claim_says_whether_it_is_about_the_scale(scales, scale, applicable):
    claim = Claim("a is large", (above("a", "x", 0),), scales)
    assert claim.check(FAR, scale).applicable is applicable


@pytest.mark.parametrize(
    ("theirs", "apart"), [(10.0, False), (11.1, False), (11.2, True), (8.8, True)]
)
def test_a_number_differs_from_the_papers_by_two_standard_errors(theirs, apart):
    ours = Measured(values=(9.0, 10.0, 11.0), published=Published(value=theirs))
    assert ours.apart is apart
    wide = Measured(values=(9.0, 10.0, 11.0), published=Published(value=theirs, error=5.0))
    assert not wide.apart


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_what_is_not_finite_tells_nothing_and_survives_its_record(bad):
    cell = Measured(values=(1.0, bad), published=Published(value=1.0))
    assert cell.error is None and not cell.apart
    again = Measured.model_validate_json(cell.model_dump_json())
    assert str(again.values) == str(cell.values)
    assert above("a", "x", 0)({"a": {"x": cell}}).verdict == "cannot be told"
