"""Which test images an accuracy is of: kept with it, so that comparisons can count them.

All seeds of a claim often share their test images, so the scatter over seeds does not show
what other images would have given. The bits of which image stayed right do.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from advnorm.records import ImageVerdicts, LedgerEntry, Measured, Result, Verdicts

Rows = Mapping[str, Mapping[str, Measured]]
"""Numbers by row and column."""
ImagesOfSeeds = Mapping[tuple[str, str], Mapping[int, ImageVerdicts]]
"""By row and column, and by seed."""


class NumbersOfImages(dict[str, Mapping[str, Measured]]):
    """Numbers by row and column, with the images that they are of."""

    def __init__(self, rows: Rows, images: ImagesOfSeeds) -> None:
        super().__init__(rows)
        self.images = images


def image_verdicts(
    verdicts: Verdicts, result: Result, steps: int | None = None
) -> ImageVerdicts | None:
    """Return which images stayed right under a result's condition; at a step of a curve."""
    right: Sequence[bool] = verdicts.robust
    if steps is not None:
        if len(verdicts.curve) != len(verdicts.samples):
            return None
        column = [*result.curve].index(steps)
        right = [row[column] for row in verdicts.curve]
    if not right or len(right) != result.accuracy.n:
        return None
    facts = f"{result.data} {result.split} {verdicts.samples} {verdicts.labels}"
    packed = np.packbits(np.array(right, dtype=bool)).tobytes()
    digest = sha256(facts.encode()).hexdigest()[:16]
    return ImageVerdicts(of=digest, right=b64encode(packed).decode())


def images_of(entries: Sequence[LedgerEntry]) -> ImagesOfSeeds:
    """Return the images of each number that is an accuracy under one condition."""
    images: dict[tuple[str, str], dict[int, ImageVerdicts]] = {}
    for entry in entries:
        for column, verdicts in entry.images.items():
            images.setdefault((entry.row, column), {})[entry.seed] = verdicts
    return images


def sums_over_images(
    terms: Sequence[tuple[float, tuple[str, str], Measured]],
    images: ImagesOfSeeds,
    seeds: Sequence[int],
) -> NDArray[np.float64] | None:
    """Return a signed sum of accuracies in percent by seed and image.

    ``None`` if the images of a term are not known, or are not those of all terms and seeds.
    """
    verdicts = [images.get(place, {}).get(seed) for _, place, _ in terms for seed in seeds]
    known = [each for each in verdicts if each is not None]
    if len(known) < len(verdicts) or len({each.of for each in known}) != 1:
        return None
    counts = {number.n for _, _, number in terms}
    count = counts.pop()
    if counts or not count:
        return None
    total = np.zeros((len(seeds), count))
    for sign, place, _ in terms:
        for row, seed in enumerate(seeds):
            total[row] += 100 * sign * _unpacked(images[place][seed], count)
    return total


def _unpacked(verdicts: ImageVerdicts, count: int) -> NDArray[np.float64]:
    packed = np.frombuffer(b64decode(verdicts.right), dtype=np.uint8)
    return np.unpackbits(packed, count=count).astype(np.float64)
