"""McNemar's test, the interval of a paired difference, and Holm's correction."""

from itertools import product
from math import comb, isclose, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from advnorm.significance import Z, _score, holm, mcnemar, paired_interval


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_mcnemar_is_the_two_sided_binomial_test(b, c):
    expected = stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert isclose(mcnemar(b, c), expected, rel_tol=1e-9, abs_tol=1e-300)


def test_mcnemar_by_hand():
    """P(X <= 1) = (1 + 6) / 64 for six fair coins."""
    assert mcnemar(1, 5) == pytest.approx(2 * 7 / 64)


def most_likely(b, c, n, difference):
    """Return the most likely P(second only) under a difference, by numerical search."""

    def loss(q):
        p = q + difference
        terms = ((b, p), (c, q), (n - b - c, 1 - p - q))
        return -sum(k * np.log(max(value, 1e-300)) for k, value in terms if k)

    ends = (max(0.0, -difference), (1 - difference) / 2)
    options = {"xatol": 1e-12}
    return optimize.minimize_scalar(loss, bounds=ends, options=options).x


@pytest.mark.parametrize("b, c, n", [(12, 2, 50), (3, 9, 20), (40, 37, 100), (1, 0, 10)])
@pytest.mark.parametrize("difference", [-0.3, -0.1, 0.05, 0.2])
def test_the_score_is_that_of_the_constrained_likelihood(b, c, n, difference):
    q = most_likely(b, c, n, difference)
    error = sqrt(n * (2 * q + difference * (1 - difference)))
    expected = (b - c - n * difference) / error
    assert _score(b, c, n, difference) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "b, c, n", [(12, 2, 50), (3, 9, 20), (40, 37, 100), (300, 100, 5000)]
)
def test_the_interval_ends_where_the_test_rejects_and_agrees_with_mcnemar_at_0(b, c, n):
    low, high = paired_interval(b, c, n)
    assert _score(b, c, n, low) == pytest.approx(Z) and _score(
        b, c, n, high
    ) == pytest.approx(-Z)
    assert low < (b - c) / n < high
    assert _score(b, c, n, 0.0) == pytest.approx((b - c) / sqrt(b + c))


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))
def test_the_interval_is_mirrored_and_holds_the_estimate(b, c, same):
    n = b + c + same
    low, high = paired_interval(b, c, n)
    mirrored = paired_interval(c, b, n)
    assert mirrored == pytest.approx((-high, -low), abs=1e-9)
    assert n == 0 or -1 <= low <= (b - c) / n <= high <= 1


@pytest.mark.parametrize("p, q", [(0.1, 0.1), (0.3, 0.1), (0.05, 0.2), (0.5, 0.3)])
def test_the_interval_covers_95_percent(p, q):
    """Add up the probability of every outcome of 30 pairs whose interval holds p - q."""
    n, covered = 30, 0.0
    for b, c in product(range(n + 1), repeat=2):
        if b + c <= n:
            low, high = paired_interval(b, c, n)
            ways = comb(n, b) * comb(n - b, c)
            weight = ways * p**b * q**c * (1 - p - q) ** (n - b - c)
            covered += weight * (low <= p - q <= high)
    assert 0.93 < covered < 0.975


def test_holm_is_that_of_scipy_s_reference():
    """Written from the definition: the k-th smallest times the number that is left."""
    p = [0.01, 0.04, 0.03, 0.005]
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
