"""Means over seeds, sums of such means, and the t-test of whether they exceed a limit."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # not every command needs it
    import numpy as np
    from numpy.typing import NDArray

FEWEST_SEEDS = 3
"""With fewer, no difference is decided."""
LEVEL = 0.05
"""How often a test may find a difference where there is none."""


class Sample(NamedTuple):
    """One value a seed."""

    values: Sequence[float]
    step: float = 0.0
    """What the values are multiples of: of accuracies in percent, 100 / n."""


class Estimate(NamedTuple):
    """A mean, with what a t-test needs."""

    mean: float
    error: float
    """Its standard error."""
    freedom: float
    """Degrees of freedom of the standard error."""

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval."""
        from scipy.special import stdtrit  # on first use: not every command needs it

        return float(stdtrit(self.freedom, 1 - LEVEL / 2)) * self.error

    def p_value(self, limit: float = 0.0) -> float:
        """Return the two-sided p-value of the mean being the limit.

        >>> round(estimate(Sample((1.0, 2.0, 3.0))).p_value(), 4)  # t = 2 sqrt(3)
        0.0742
        """
        from scipy.special import stdtr

        distance = abs(self.mean - limit)
        if self.error == 0:
            return 1.0 if distance == 0 else 0.0
        return float(2 * stdtr(self.freedom, -distance / self.error))


def estimate(sample: Sample) -> Estimate:
    """Return the mean of two or more values (Student, 1908)."""
    count = len(sample.values)
    return Estimate(mean(sample.values), _deviation(sample) / sqrt(count), count - 1)


def with_images(tested: Estimate, values: "NDArray[np.float64]") -> Estimate:
    r"""Add to a mean over seeds the variance over the images that all seeds share.

    ``values`` are those of each seed (rows) and image. With S seeds, n images and the mean
    squares :math:`M_i` of images and :math:`M_r` of the rest (Cornfield & Tukey, 1956),

    .. math:: \text{error}^2 = e^2 + v, \quad v = \max\Bigl(\frac{M_i - M_r}{S n}, 0\Bigr),
        \quad \text{freedom} = \frac{(e^2 + v)^2}{e^4 / (S - 1) + v^2 / (n - 1)}

    where e is the standard error over seeds: other images would change the mean too.

    >>> import numpy as np
    >>> one = estimate(Sample((50.0, 50.0, 50.0)))
    >>> round(with_images(one, np.array([[0.0, 100.0, 0.0, 100.0]] * 3)).error, 2)
    28.87
    """
    seeds, images = values.shape
    if images < 2:
        return tested
    by_image = values.mean(axis=0)
    between = seeds * by_image.var(ddof=1)
    rest = values - by_image - values.mean(axis=1, keepdims=True) + values.mean()
    within = float((rest**2).sum()) / ((seeds - 1) * (images - 1))
    added = max(float(between) - within, 0.0) / (seeds * images)
    own = tested.error**2
    squares = own**2 / tested.freedom + added**2 / (images - 1)
    if not squares:
        return tested
    return Estimate(tested.mean, sqrt(own + added), (own + added) ** 2 / squares)


def weighted_sum(terms: Sequence[tuple[float, Sample]]) -> Estimate:
    r"""Return a sum of means of independent samples, each with its weight (Welch, 1947).

    With weights :math:`c_i`, deviations :math:`s_i` and :math:`n_i` values,

    .. math:: v_i = c_i^2 s_i^2 / n_i, \quad \text{error}^2 = \sum_i v_i, \quad
        \text{freedom} = \frac{(\sum_i v_i)^2}{\sum_i v_i^2 / (n_i - 1)}

    >>> two = weighted_sum([(1, Sample((1.0, 2.0, 3.0))), (-1, Sample((4.0, 6.0, 8.0)))])
    >>> two.mean, round(two.error, 3), round(two.freedom, 3)
    (-4.0, 1.291, 2.941)
    """
    counts = [len(sample.values) for _, sample in terms]
    parts = [
        (weight * _deviation(sample)) ** 2 / count
        for (weight, sample), count in zip(terms, counts, strict=True)
    ]
    squares = sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True))
    return Estimate(
        mean=sum(weight * mean(sample.values) for weight, sample in terms),
        error=sqrt(sum(parts)),
        freedom=sum(parts) ** 2 / squares if squares else min(counts) - 1,
    )


def _deviation(sample: Sample) -> float:
    """Return the standard deviation, at least that of rounding to multiples of the step.

    Values that agree by chance do not count as certain.
    """
    return max(stdev(sample.values), sample.step / sqrt(12))
