"""What xie2020's Table 7 says about each strategy, with its slipped labels put right.

The last block of that table is read as the README of the papers says: PGD-5 rows of the
mixture norm, then batch sizes, then depths.
"""

from advnorm.papers.xie2020.setting import (
    ADVERSARIAL,
    ALP,
    GN,
    MBN,
    MBN_ALP,
    MIXED,
    STEPS,
)

COUNTS = (10, 20, 100, 500, 2000)
"""Steps of PGD of the table's columns, after the clean accuracy."""

Line = tuple[float, float, float, float, float, float]

SHARES: dict[int, Line] = {
    80: (77.4, 56.8, 54.6, 39.6, 28.7, 20.3),
    60: (75.5, 54.6, 52.1, 40.3, 23.5, 15.3),
    40: (73.9, 54.1, 51.5, 40.2, 33.6, 29.1),
    20: (68.0, 54.6, 51.5, 40.6, 34.6, 32.1),
}
"""By percent of clean images."""

STRATEGIES: dict[int, dict[str, Line]] = {
    30: {
        ALP: (73.5, 48.8, 46.3, 34.1, 27.3, 23.0),
        MIXED: (78.0, 56.2, 53.0, 35.6, 26.6, 20.9),
        ADVERSARIAL: (62.3, 52.5, 50.0, 41.7, 39.6, 39.2),
        f"{ADVERSARIAL}*": (62.1, 52.4, 50.3, 43.9, 42.6, 42.2),
        MBN: (64.4, 51.8, 49.1, 40.9, 38.8, 38.3),
        f"{MBN}*": (64.2, 52.5, 50.0, 42.1, 40.5, 39.9),
        MBN_ALP: (65.9, 47.3, 45.0, 38.3, 35.9, 35.3),
        f"{MBN_ALP}*": (64.3, 49.0, 47.2, 40.4, 38.6, 38.1),
        GN: (67.5, 52.1, 49.3, 41.9, 39.5, 39.0),
    },
    20: {
        ALP: (72.7, 50.1, 47.6, 33.4, 25.2, 19.2),
        MIXED: (78.4, 55.9, 52.5, 31.7, 20.0, 13.6),
        ADVERSARIAL: (62.5, 54.1, 51.1, 41.8, 39.0, 38.2),
        f"{ADVERSARIAL}*": (65.4, 53.9, 51.0, 42.7, 40.8, 40.0),
        MBN: (67.9, 52.8, 49.9, 39.3, 35.5, 34.1),
        f"{MBN}*": (67.2, 52.7, 49.9, 40.2, 37.2, 36.5),
        MBN_ALP: (68.1, 48.8, 46.7, 39.5, 36.7, 35.8),
        f"{MBN_ALP}*": (67.4, 50.0, 47.7, 40.3, 37.4, 37.1),
    },
    10: {
        ALP: (74.9, 47.3, 47.1, 22.4, 7.3, 3.3),
        MIXED: (78.4, 56.6, 55.1, 28.8, 7.1, 3.2),
        ADVERSARIAL: (66.0, 53.6, 50.9, 41.1, 38.0, 36.8),
        f"{ADVERSARIAL}*": (65.9, 53.5, 50.7, 42.3, 39.9, 39.2),
        MBN: (68.7, 53.5, 49.9, 38.7, 34.3, 32.8),
        f"{MBN}*": (67.8, 52.6, 49.8, 40.0, 36.9, 36.1),
        MBN_ALP: (68.7, 49.0, 46.8, 38.9, 35.4, 33.9),
        f"{MBN_ALP}*": (67.7, 50.0, 47.7, 40.2, 37.4, 36.7),
    },
    5: {
        ALP: (75.0, 49.6, 37.6, 5.7, 0.8, 0.3),
        MIXED: (78.6, 41.5, 17.6, 0.2, 0.0, 0.0),
        ADVERSARIAL: (67.0, 54.0, 50.5, 40.7, 37.5, 35.9),
        f"{ADVERSARIAL}*": (66.9, 53.6, 50.4, 41.5, 38.8, 37.8),
        MBN: (69.3, 53.0, 49.8, 38.0, 33.3, 31.2),
        f"{MBN}*": (68.9, 53.1, 49.8, 39.8, 35.9, 34.2),
        MBN_ALP: (69.2, 49.6, 46.8, 38.9, 34.9, 32.9),
        f"{MBN_ALP}*": (69.2, 50.4, 48.3, 40.3, 37.0, 35.4),
    },
}
"""By steps of PGD in training, and strategy."""

BATCHES: dict[int, Line] = {
    512: (62.6, 52.4, 50.4, 43.8, 42.4, 42.0),
    1024: (63.1, 53.3, 51.0, 44.6, 43.5, 43.1),
    2048: (62.7, 53.3, 50.7, 45.0, 43.7, 43.3),
    8192: (61.8, 52.1, 49.8, 43.4, 42.3, 41.9),
}
"""By batch size, of adversarial training with running statistics at the end."""

DEPTHS: dict[int, Line] = {
    200: (63.5, 53.8, 51.4, 45.1, 43.9, 43.8),
    338: (65.4, 55.5, 53.2, 46.6, 45.1, 44.6),
    518: (66.7, 56.7, 54.4, 48.1, 46.4, 46.2),
    638: (67.2, 57.2, 54.8, 48.7, 47.1, 46.7),
}
"""By depth of the ResNet, of the same training."""


def at_steps(strategy: str) -> tuple[float | None, ...]:
    """Return a strategy's accuracies under PGD at each of ``STEPS``."""
    known = dict(zip(COUNTS, STRATEGIES[30][strategy][1:], strict=True))
    return tuple(known.get(count) for count in STEPS)


def hardest(strategy: str, steps: int = 30) -> float:
    """Return a strategy's accuracy under PGD-2000, trained with so many steps."""
    return STRATEGIES[steps][strategy][-1]
