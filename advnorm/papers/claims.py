"""Claims as statements that a program can check, from numbers over seeds.

A claim is one or several comparisons. Each is a t-test over seeds: seed by seed where both
numbers are of the same seeds, by Welch otherwise. The p-values of a claim's comparisons are
corrected together (Holm), so that the chance that a claim of equal numbers is decided
anyhow is at most 5%. Where all seeds share their test images, and it is on record which
were right, the scatter over images is part of the standard error. What is not significant,
and what has fewer than three seeds, cannot be told. A claim holds if all its comparisons
hold, and does not hold if one of them does not. Its reason shows each as the claimed
inequality, with a mark before it; of many, those that decide.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Literal

from advnorm.papers.images import NumbersOfImages, sums_over_images
from advnorm.records import MARKS, ClaimResult, Measured, Scale, Verdict, counted
from advnorm.significance import holm
from advnorm.t_test import (
    FEWEST_SEEDS,
    LEVEL,
    Estimate,
    Sample,
    estimate,
    weighted_sum,
    with_images,
)

SHOWN = 3
"""Parts of a claim that its reason shows, if it has more."""

Numbers = Mapping[str, Mapping[str, Measured]]
"""By row and column."""
Place = tuple[str, str]
"""The row and the column of a number."""
Gain = tuple[Place, Place]
"""A number, and the smaller one that it is compared with."""


@dataclass(frozen=True)
class ComparedNumbers:
    """An inequality that is claimed, and how sure the numbers make it or its opposite."""

    why: str
    """In words and numbers."""
    difference: float = 0.0
    """Above 0 where the numbers are as claimed."""
    p: float | None = None
    """Of both sides being equal; ``None`` where that cannot be tested."""


@dataclass(frozen=True)
class PartVerdict:
    """Whether a part of a claim holds, and by which numbers."""

    verdict: Verdict
    why: str
    p: float = 1.0
    """Corrected for the number of the claim's comparisons."""


Part = Callable[[Numbers], ComparedNumbers]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, as parts that all have to hold."""

    text: str
    parts: tuple[Part, ...]
    scales: tuple[Scale, ...] = ("reduced", "full")
    """The scales at which the claim can be checked."""

    def check(self, numbers: Numbers, scale: Scale) -> ClaimResult:
        """Return the verdict on the claim, and its reason."""
        if scale not in self.scales:
            smoke = "at scale smoke only the path is tested"
            why = smoke if scale == "smoke" else f"it is about scale {self.scales[0]}"
            return ClaimResult(
                text=self.text, verdict="cannot be told", why=why, applicable=False
            )
        parts = self.check_parts(numbers)
        return ClaimResult(text=self.text, verdict=worst(parts), why=reason(parts))

    def check_parts(self, numbers: Numbers) -> list[PartVerdict]:
        """Return the verdict on each part."""
        return judge([part(numbers) for part in self.parts])


def judge(comparisons: Sequence[ComparedNumbers]) -> list[PartVerdict]:
    """Return the verdicts on a claim's comparisons, corrected for their number.

    >>> few = [ComparedNumbers("a > b", 1.0, 0.03), ComparedNumbers("c > d", -1.0, 0.01)]
    >>> [part.verdict for part in judge(few)]
    ['holds', 'does not hold']
    >>> [part.verdict for part in judge([*few, ComparedNumbers("e > f", 1.0, 0.04)])]
    ['cannot be told', 'does not hold', 'cannot be told']
    """
    tested = [n for n, each in enumerate(comparisons) if each.p is not None]
    adjusted = holm([each.p for each in comparisons if each.p is not None])
    p_values = dict(zip(tested, adjusted, strict=True))
    return [
        PartVerdict(_verdict(each.difference, p_values.get(n, 1.0)), each.why, p)
        for n, each in enumerate(comparisons)
        for p in [p_values.get(n, 1.0)]
    ]


def _verdict(difference: float, p: float) -> Verdict:
    if p > LEVEL:
        return "cannot be told"
    return "holds" if difference > 0 else "does not hold"


def reason(parts: Sequence[PartVerdict]) -> str:
    """Return the parts that decide, each with its mark, and how many there are in all.

    >>> parts = PartVerdict("holds", "3 ± 1 > 0"), PartVerdict("does not hold", "3 ± 1 < 0")
    >>> reason(parts)
    '✓ 3 ± 1 > 0; ✗ 3 ± 1 < 0'
    """
    text = "; ".join(f"{MARKS[parts[n].verdict]} {parts[n].why}" for n in deciding(parts))
    if len(parts) <= SHOWN:
        return text
    verdicts = Counter(part.verdict for part in parts)
    each = ", ".join(counted(verdicts[name], name) for name in MARKS if verdicts[name])
    return f"{text} (of {len(parts)} comparisons {each})"


def deciding(parts: Sequence[PartVerdict]) -> list[int]:
    """Return the indices of all parts; of more than ``SHOWN``, the least sure that decide.

    >>> parts = [PartVerdict("holds", "", p) for p in (0.0, 0.03, 0.02, 0.01)]
    >>> deciding(parts), deciding([*parts, PartVerdict("does not hold", "", p=0.0)])
    ([1, 2, 3], [4])
    """
    if len(parts) <= SHOWN:
        return list(range(len(parts)))
    overall = worst(parts)
    decisive = [n for n, part in enumerate(parts) if part.verdict == overall]
    return sorted(sorted(decisive, key=lambda n: -parts[n].p)[:SHOWN])


def worst(parts: Sequence[PartVerdict]) -> Verdict:
    """Return the verdict of all parts together.

    >>> worst([PartVerdict("holds", ""), PartVerdict("cannot be told", "")])
    'cannot be told'
    """
    verdicts, order = {part.verdict for part in parts}, ("does not hold", "cannot be told")
    return next((verdict for verdict in order if verdict in verdicts), "holds")


def above(row: str, column: str, limit: float) -> Part:
    """Claim that a number is above a limit."""
    return _limited(row, column, ">", limit)


def below(row: str, column: str, limit: float) -> Part:
    """Claim that a number is below a limit."""
    return _limited(row, column, "<", limit)


def _limited(row: str, column: str, sign: Literal["<", ">"], limit: float) -> Part:
    side = 1.0 if sign == ">" else -1.0

    def part(numbers: Numbers) -> ComparedNumbers:
        words = f"{row}, {column}: {{}} {sign} {limit:g}"
        return _compare(numbers, [(side, (row, column))], side * limit, words)

    return part


def more(larger: Place, smaller: Place, *, by: float = 0.0) -> Part:
    """Claim that one number (row, column) is larger than another, by more than ``by``."""

    def part(numbers: Numbers) -> ComparedNumbers:
        margin = f" + {by:g}" if by else ""
        words = f"{_named(larger)} > {_named(smaller)}{margin}"
        return _compare(numbers, [(1.0, larger), (-1.0, smaller)], by, words)

    return part


def at_most_share(smaller: Place, larger: Place, share: float) -> Part:
    """Claim that a number (row, column) is below a share of another.

    >>> rows = {"a": {"x": Measured(values=(1.0, 1.1, 1.2))}}
    >>> rows["b"] = {"x": Measured(values=(5.0, 5.2, 5.1))}
    >>> part = at_most_share(("a", "x"), ("b", "x"), 0.5)
    >>> judge([part(rows)])[0].verdict, part(rows).why
    ('holds', 'a, x: 1.1 ± 0.058 < 0.5 of b, x: 5.1 ± 0.058')
    """

    def part(numbers: Numbers) -> ComparedNumbers:
        words = f"{_named(smaller)} < {share:g} of {_named(larger)}"
        return _compare(numbers, [(-1.0, smaller), (share, larger)], 0.0, words)

    return part


def ahead(
    better: str, other: str, columns: Iterable[str], *, by: float = 0.0
) -> tuple[Part, ...]:
    """Claim that a row has more than another in each of these columns."""
    return tuple(more((better, column), (other, column), by=by) for column in columns)


def within(larger: Place, smaller: Place, by: float) -> Part:
    """Claim that one number (row, column) is less than ``by`` above another."""

    def part(numbers: Numbers) -> ComparedNumbers:
        words = f"{_named(larger)} < {_named(smaller)} + {by:g}"
        return _compare(numbers, [(-1.0, larger), (1.0, smaller)], -by, words)

    return part


def wider(wide: Gain, narrow: Gain, *, by: float = 0.0) -> Part:
    """Claim that a gain, a number (row, column) less another, exceeds another by ``by``.

    A negative ``by`` claims that it is not so much smaller.

    >>> row = {"x": Measured(values=(5.0, 5.2, 5.1)), "y": Measured(values=(1.0, 1.2, 1.0))}
    >>> gain, none = (("a", "x"), ("a", "y")), (("a", "x"), ("a", "x"))
    >>> [judge([wider(gain, none, by=by)({"a": row})])[0].verdict for by in (0, 5)]
    ['holds', 'does not hold']
    """

    def part(numbers: Numbers) -> ComparedNumbers:
        gains = [_gain(numbers, gain) for gain in (wide, narrow)]
        words = " > ".join(gains) + (f" {'+' if by > 0 else '-'} {abs(by):g}" if by else "")
        signed = zip((1.0, -1.0, -1.0, 1.0), (*wide, *narrow), strict=True)
        return _compare(numbers, list(signed), by, words)

    return part


def rising(row: str, columns: tuple[str, ...], *, down: bool = False) -> tuple[Part, ...]:
    """Claim that a row's numbers go up (or down) from each column to the next."""
    return tuple(
        more((row, a), (row, b)) if down else more((row, b), (row, a))
        for a, b in pairwise(columns)
    )


def _named(place: Place) -> str:
    """Return a place in words, with room for its number."""
    return f"{', '.join(place)}: {{}}"


def _gain(numbers: Numbers, gain: Gain) -> str:
    """Return a gain in words, with its size and room for its numbers."""
    larger, smaller = (_find(numbers, place) for place in gain)
    size = f"{larger.mean - smaller.mean:.4g} " if larger and smaller else ""
    return f"{size}({_named(gain[0])} - {_named(gain[1])})"


def _compare(
    numbers: Numbers, terms: Sequence[tuple[float, Place]], limit: float, words: str
) -> ComparedNumbers:
    """Compare a signed sum of numbers with a limit, which it is claimed to exceed."""
    there = []
    for sign, place in terms:
        number = _find(numbers, place)
        if number is None:
            return ComparedNumbers(f"{', '.join(place)}: not measured")
        there.append((sign, place, number))
    why = words.format(*(number for *_, number in there))
    values = [value for *_, number in there for value in number.values]
    if not all(map(isfinite, values)):
        return ComparedNumbers(why)
    mean = sum(sign * number.mean for sign, _, number in there)
    if min(len(number.values) for *_, number in there) < FEWEST_SEEDS:
        return ComparedNumbers(why, mean - limit)
    tested = _sum_of(_collected(there), numbers)
    return ComparedNumbers(why, tested.mean - limit, tested.p_value(limit))


def _collected(
    terms: Sequence[tuple[float, Place, Measured]],
) -> list[tuple[float, Place, Measured]]:
    """Add the signs of a number that is there twice."""
    signs: dict[Place, float] = defaultdict(float)
    for sign, place, _ in terms:
        signs[place] += sign
    measured = {place: number for _, place, number in terms}
    return [(signs[place], place, number) for place, number in measured.items()]


def _sum_of(terms: Sequence[tuple[float, Place, Measured]], numbers: Numbers) -> Estimate:
    """Return a signed sum of numbers: seed by seed where all are of the same seeds.

    Where these share their test images, and which were right is on record, the variance
    over images is part of the standard error.
    """
    if len({_seeds(number) for *_, number in terms}) > 1:
        return weighted_sum([(sign, Sample(n.values, _step(n))) for sign, _, n in terms])
    rows = zip(*(number.values for *_, number in terms), strict=True)
    signs = [sign for sign, *_ in terms]
    sums = [sum(s * v for s, v in zip(signs, row, strict=True)) for row in rows]
    tested = estimate(Sample(sums, max(_step(number) for *_, number in terms)))
    if not isinstance(numbers, NumbersOfImages):
        return tested
    values = sums_over_images(terms, numbers.images, _seeds(terms[0][2]))
    return tested if values is None else with_images(tested, values)


def _seeds(number: Measured) -> tuple[int, ...]:
    return number.seeds or tuple(range(len(number.values)))


def _step(number: Measured) -> float:
    """Return what an accuracy in percent is a multiple of."""
    return 100 / number.n if number.n else 0.0


def _find(numbers: Numbers, place: Place) -> Measured | None:
    row, column = place
    return numbers.get(row, {}).get(column)
