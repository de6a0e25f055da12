"""The schedule of most papers: the learning rate falls tenfold at parts of the epochs."""

from collections.abc import Sequence

from advnorm.recipe import Piecewise


def step_decay(epochs: int, shares: Sequence[float]) -> Piecewise:
    """Divide the learning rate by 10 after these shares of the epochs.

    >>> step_decay(200, (0.5, 0.75)).at
    (100.0, 150.0)
    """
    return Piecewise(at=tuple(round(epochs * share, 6) for share in shares))
