"""Radii in place of points: a bracket per sample, the curve, its area, medians."""

from collections.abc import Sequence

from advnorm.records.base import Record
from advnorm.significance import median_ranks

Bracket = tuple[float, float | None]
"""The largest certified and the smallest broken radius; ``None`` where nothing broke it."""
_SHARES = 20  # points of the curve: from 100% to 0% in steps of 5


class MedianRadius(Record):
    """A median over samples, with its 95% interval; ``None`` is beyond every broken one.

    The interval lies between two order statistics, whose ranks come from the binomial
    distribution of the number of samples below the median: it assumes no distribution.
    """

    value: float | None
    """The lower of the two middle values."""
    low: float
    """The lower end of the interval; 0 with too few samples."""
    high: float | None
    """Its upper end; ``None`` with too few samples as well."""

    def __str__(self) -> str:
        value, high = ("none" if x is None else f"{x:.4g}" for x in (self.value, self.high))
        return f"{value} [{self.low:.4g}, {high}]"


class RadiiSummary(Record):
    """What the brackets of all samples say together."""

    n: int
    """The number of samples."""
    broken: MedianRadius
    """Of the smallest broken radii: an upper bound of the robust radius."""
    certified: MedianRadius
    """Of the largest certified radii: a lower bound."""
    area: float
    """The area under the curve of the accuracy by radius: the mean smallest broken radius.

    A sample that nothing broke counts with the largest distance of any two valid images.
    """
    certified_area: float
    """The mean largest certified radius."""
    unbroken: int
    """Samples that nothing broke at any radius."""
    curve: tuple[tuple[float, float], ...]
    """(radius, share of samples not broken within it), down to the lowest share."""

    def __str__(self) -> str:
        parts = [f"median radius {self.broken}", f"area {self.area:.4g}"]
        if self.certified_area > 0:
            parts += [
                f"certified median {self.certified}",
                f"area {self.certified_area:.4g}",
            ]
        if self.unbroken:
            parts.append(f"{self.unbroken} of {self.n} never broken")
        return ", ".join(parts)


def summarize_radii(brackets: Sequence[Bracket], *, diameter: float) -> RadiiSummary:
    """Count brackets; ``diameter`` is the largest distance of two valid images.

    >>> summary = summarize_radii([(0.1, 0.2), (0.0, 0.3), (0.0, None)], diameter=1.0)
    >>> summary.broken.value, summary.area, summary.unbroken
    (0.3, 0.5, 1)
    """
    broken = sorted((b for _, b in brackets if b is not None))
    n, unbroken = len(brackets), len(brackets) - len(broken)
    certified: list[float | None] = [*sorted(c for c, _ in brackets)]
    every: list[float | None] = [*broken, *[None] * unbroken]
    return RadiiSummary(
        n=n,
        broken=_median(every),
        certified=_median(certified),
        area=(sum(broken) + unbroken * diameter) / n,
        certified_area=sum(c for c, _ in brackets) / n,
        unbroken=unbroken,
        curve=_curve(broken, n),
    )


def _median(ordered: Sequence[float | None]) -> MedianRadius:
    """Return the lower median, with its interval between order statistics."""
    n = len(ordered)
    first, last = median_ranks(n)
    low = ordered[first - 1] if first else 0.0
    return MedianRadius(
        value=ordered[(n - 1) // 2],
        low=0.0 if low is None else low,
        high=ordered[last - 1] if last <= n else None,
    )


def _curve(broken: Sequence[float], n: int) -> tuple[tuple[float, float], ...]:
    """Return the radii at which the accuracy has fallen to each share, and what is left."""
    points = [(0.0, 1 - sum(b <= 0 for b in broken) / n)]
    for step in range(1, _SHARES + 1):
        count = -(-step * n // _SHARES)
        if 0 < count <= len(broken) and broken[count - 1] > points[-1][0]:
            radius = broken[count - 1]
            points.append((radius, 1 - sum(b <= radius for b in broken) / n))
    return tuple(points)
