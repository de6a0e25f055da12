"""The test images that all seeds share count as drawn, where it is known which were right."""

from base64 import b64decode

import numpy as np
import pytest
from test_numbers import run_tiny
from tiny_recipe import TINY

from advnorm.papers.claims import judge, more
from advnorm.papers.images import (
    NumbersOfImages,
    image_verdicts,
    images_of,
    sums_over_images,
)
from advnorm.papers.numbers import CLEAN, DifferenceNumber, ResultNumber
from advnorm.recipe import override
from advnorm.records import (
    Accuracy,
    ImageVerdicts,
    LedgerEntry,
    Measured,
    Run,
    Verdicts,
)
from advnorm.t_test import Sample, estimate, with_images

A, B = ("a", "x"), ("b", "x")


def packed(right):
    bits = "".join("1" if each else "0" for each in right)
    whole = bits.ljust(-(-len(bits) // 8) * 8, "0")
    return bytes(int(whole[i : i + 8], 2) for i in range(0, len(whole), 8))


def table(right, *, of="the same", seeds=None):
    """Return numbers of rows whose verdicts are ``(seeds, images)`` arrays."""
    entries = [
        LedgerEntry(
            row=row,
            seed=seed,
            fingerprint="",
            run="",
            numbers={},
            seconds=0,
            images={"x": ImageVerdicts(of=of, right=encoded(each))},
        )
        for row, values in right.items()
        for seed, each in enumerate(values)
    ]
    rows = {
        row: {"x": Measured(values=tuple(100 * v.mean(1)), n=v.shape[1])}
        for row, v in right.items()
    }
    return NumbersOfImages(rows, images_of(entries))


def encoded(right):
    from base64 import b64encode

    return b64encode(packed(right)).decode()


def test_the_bits_of_a_run_are_its_verdicts(tmp_path):
    """The clean accuracy, a step of a curve, and no bits of what is no accuracy."""
    curve = ResultNumber("pgd-1..2", eps=0.1, steps=1)
    numbers = {"clean": CLEAN, "one": curve, "gap": DifferenceNumber(CLEAN, curve)}
    recipe = override(TINY, ["evaluation.conditions=[clean, pgd-1..2]"])
    result = run_tiny(tmp_path, numbers, recipe=recipe)
    verdicts = Run.open(tmp_path / result.run).verdicts(curve.key)
    assert set(result.images) == {"clean", "one"}
    wanted = packed([row[0] for row in verdicts.curve])
    assert b64decode(result.images["one"].right) == wanted
    same = {judged.of for judged in result.images.values()}
    assert len(same) == 1


def test_other_images_have_another_digest(tmp_path):
    first = run_tiny(tmp_path, {"clean": CLEAN}, recipe=TINY)
    run = Run.open(tmp_path / first.run)
    verdicts, result = run.verdicts("clean"), run.result("clean")
    moved = verdicts.model_copy(update={"samples": verdicts.samples[::-1]})
    assert image_verdicts(moved, result).of != first.images["clean"].of
    assert image_verdicts(Verdicts(), result) is None
    fewer = result.model_copy(update={"accuracy": Accuracy(correct=1, n=3)})
    assert image_verdicts(verdicts, fewer) is None


def test_sums_are_of_images_that_all_terms_and_seeds_share():
    a, b = np.array([[1, 0, 1], [1, 1, 0]]), np.array([[0, 0, 1], [1, 0, 0]])
    numbers = table({"a": a, "b": b})
    terms = [(1.0, A, numbers["a"]["x"]), (-1.0, B, numbers["b"]["x"])]
    sums = sums_over_images(terms, numbers.images, (0, 1))
    assert sums.tolist() == (100.0 * (a - b)).tolist()
    other = {**numbers.images, B: table({"b": b}, of="others").images[B]}
    assert sums_over_images(terms, other, (0, 1)) is None
    assert sums_over_images(terms, {A: numbers.images[A]}, (0, 1)) is None


def test_the_added_variance_is_that_of_the_two_way_layout():
    """By sums of squares, written out: images 1, 3 and 8 of two seeds, no interaction."""
    values = np.array([[1.0, 3.0, 8.0], [2.0, 4.0, 9.0]])
    tested = estimate(Sample((4.0, 5.0)))
    both = with_images(tested, values)
    between = 2 * sum((m - 4.5) ** 2 for m in (1.5, 3.5, 8.5)) / 2
    assert both.error**2 == pytest.approx(tested.error**2 + between / 6)
    noise = np.array([[1.0, -1.0], [-1.0, 1.0]])  # interaction alone: nothing is added
    assert with_images(tested, noise) == tested


def misfires(seeds, *, counted, trials=600, images=150):
    """Return how often equal ways to train are told apart by images that one likes better.

    Each image of the population is right with its own chance under each way; the chances
    are drawn alike, so that the ways are equal over all images that could have been drawn.
    """
    draw, decided = np.random.default_rng(seeds), 0
    for _ in range(trials):
        chances = np.clip(0.5 + 0.3 * draw.standard_normal((2, 1, images)), 0, 1)
        right = draw.random((2, seeds, images)) < chances
        numbers = table({"a": right[0], "b": right[1]})
        given = numbers if counted else dict(numbers)
        decided += judge([more(A, B)(given)])[0].verdict != "cannot be told"
    return decided / trials


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_equal_ways_are_told_apart_in_5_percent_at_most(seeds):
    assert misfires(seeds, counted=True) <= 0.05 + 0.02  # two standard errors of 600
    assert misfires(seeds, counted=False) > 0.1
