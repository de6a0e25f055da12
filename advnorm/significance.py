"""Two classifiers on the same samples, and p-values of several comparisons."""

from collections.abc import Callable, Sequence
from math import inf, sqrt

Z = 1.959963984540054
"""The 97.5% quantile of the normal distribution."""


def mcnemar(first_only: int, second_only: int) -> float:
    r"""Return the p-value of McNemar's test in its exact form (McNemar, 1947).

    Of the samples that exactly one of two classifiers gets right, ``first_only`` and
    ``second_only`` are binomial with probability 1/2 if both are equally good:

    .. math:: p = \min(1,\; 2\,P(X \le \min(b, c))), \quad X \sim B(b + c, 1/2)

    >>> mcnemar(0, 5), mcnemar(3, 3)
    (0.0625, 1.0)
    """
    from scipy.special import bdtr  # a float's precision, also for many samples

    total, fewer = first_only + second_only, min(first_only, second_only)
    return min(1.0, 2 * float(bdtr(fewer, total, 0.5))) if total else 1.0


def paired_interval(first_only: int, second_only: int, n: int) -> tuple[float, float]:
    r"""Return the 95% score interval of a difference of paired proportions (Tango, 1998).

    It holds every difference :math:`\delta` that the score test does not reject:

    .. math:: \left|\frac{b - c - n\delta}{\sqrt{n\,(2\hat q + \delta(1 - \delta))}}\right|
        \le 1.96

    where :math:`\hat q` is the most likely probability of ``second_only`` under
    :math:`\delta`. At :math:`\delta = 0` it is McNemar's statistic.

    >>> low, high = paired_interval(12, 2, 50)
    >>> round(low, 3), round(high, 3)
    (0.061, 0.345)
    """
    if not n:
        return (-1.0, 1.0)
    estimate = (first_only - second_only) / n

    def score(difference: float) -> float:
        return _score(first_only, second_only, n, difference)

    low = _crossing(lambda d: score(d) > Z, -1.0, estimate)
    return (low, _crossing(lambda d: score(d) >= -Z, estimate, 1.0))


def _score(b: int, c: int, n: int, difference: float) -> float:
    """Return the score statistic of one difference; it falls as the difference grows."""
    square = 2 * n
    linear = (2 * n - b + c) * difference - b - c
    constant = -c * difference * (1 - difference)
    root = sqrt(max(0.0, linear * linear - 4 * square * constant))
    q = max(0.0, (root - linear) / (2 * square))
    variance = n * (2 * q + difference * (1 - difference))
    numerator = b - c - n * difference
    if variance <= 1e-12:
        return 0.0 if abs(numerator) < 1e-9 else inf if numerator > 0 else -inf
    return numerator / sqrt(variance)


def _crossing(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return where a condition, true at ``low``, becomes false; ``high`` if it does not."""
    if holds(high):
        return high
    if not holds(low):
        return low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def median_ranks(n: int) -> tuple[int, int]:
    r"""Return the ranks, from 1, of the order statistics around the median at 95%.

    The number of values below the median is binomial with probability 1/2, so

    .. math:: P(X_{(l)} \le m \le X_{(n + 1 - l)}) \ge 1 - 2 P(B < l) \ge 0.95

    for the largest such l. With fewer than 6 values there is none: the ranks are 0 and
    n + 1.

    >>> median_ranks(100), median_ranks(6), median_ranks(5)
    ((40, 61), (1, 6), (0, 6))
    """
    from scipy.special import bdtr

    low = n // 2
    while low and float(bdtr(low - 1, n, 0.5)) > 0.025:
        low -= 1
    return low, n + 1 - low
