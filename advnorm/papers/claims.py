"""Claims as statements that a program can check, from numbers over seeds.

A comparison is decided when the numbers are further apart than two standard errors of their
difference; otherwise it cannot be told. Two numbers of a row are compared seed by seed,
since they are often of the same runs. A claim of several parts holds if all of them hold,
and does not hold if one of them does not. Its reason shows each part as the claimed
inequality, with a mark before it; of many parts, those that decide.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, inf, isfinite
from typing import Literal, NamedTuple

from advnorm.records import MARKS, ClaimResult, Measured, Scale, Verdict, counted

SHOWN = 3
"""Parts of a claim that its reason shows, if it has more."""

Numbers = Mapping[str, Mapping[str, Measured]]
"""By row and column."""
Place = tuple[str, str]
"""The row and the column of a number."""
Gain = tuple[Place, Place]
"""A number, and the smaller one that it is compared with."""


@dataclass(frozen=True)
class PartVerdict:
    """Whether a part of a claim holds, and by which numbers."""

    verdict: Verdict
    why: str
    clear: float = 0.0
    """How many standard errors its two sides are apart."""


Part = Callable[[Numbers], PartVerdict]


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
        return [part(numbers) for part in self.parts]


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
    """Return the indices of all parts; of more than ``SHOWN``, the closest that decide.

    >>> parts = [PartVerdict("holds", "", clear=n) for n in (9, 3, 4, 5)]
    >>> deciding(parts), deciding([*parts, PartVerdict("does not hold", "", clear=7)])
    ([1, 2, 3], [4])
    """
    if len(parts) <= SHOWN:
        return list(range(len(parts)))
    overall = worst(parts)
    decisive = [n for n, part in enumerate(parts) if part.verdict == overall]
    return sorted(sorted(decisive, key=lambda n: parts[n].clear)[:SHOWN])


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
    def part(numbers: Numbers) -> PartVerdict:
        number = _find(numbers, row, column)
        if number is None:
            return _missing(row, column)
        difference = number.mean - limit if sign == ">" else limit - number.mean
        why = f"{row}, {column}: {number} {sign} {limit:g}"
        return _verdict(difference, number.error, why)

    return part


def more(larger: Place, smaller: Place, *, by: float = 0.0) -> Part:
    """Claim that one number (row, column) is larger than another, by more than ``by``."""

    def part(numbers: Numbers) -> PartVerdict:
        difference = _difference(numbers, larger, smaller)
        if isinstance(difference, PartVerdict):
            return difference
        margin = f" + {by:g}" if by else ""
        why = f"{difference.larger} > {difference.smaller}{margin}"
        return _verdict(difference.mean - by, difference.error, why)

    return part


def ahead(
    better: str, other: str, columns: Iterable[str], *, by: float = 0.0
) -> tuple[Part, ...]:
    """Claim that a row has more than another in each of these columns."""
    return tuple(more((better, column), (other, column), by=by) for column in columns)


def within(larger: Place, smaller: Place, by: float) -> Part:
    """Claim that one number (row, column) is less than ``by`` above another."""

    def part(numbers: Numbers) -> PartVerdict:
        difference = _difference(numbers, larger, smaller)
        if isinstance(difference, PartVerdict):
            return difference
        why = f"{difference.larger} < {difference.smaller} + {by:g}"
        return _verdict(by - difference.mean, difference.error, why)

    return part


def wider(wide: Gain, narrow: Gain, *, by: float = 0.0) -> Part:
    """Claim that a gain, a number (row, column) less another, exceeds another by ``by``.

    A negative ``by`` claims that it is not so much smaller.

    >>> two = {"x": Measured(values=(5.0, 5.2)), "y": Measured(values=(1.0, 1.2))}
    >>> grown = wider((("a", "x"), ("a", "y")), (("a", "x"), ("a", "x")))
    >>> grown({"a": two}).verdict
    'holds'
    >>> wider((("a", "x"), ("a", "y")), (("a", "x"), ("a", "x")), by=5)({"a": two}).verdict
    'does not hold'
    """

    def part(numbers: Numbers) -> PartVerdict:
        first, second = _difference(numbers, *wide), _difference(numbers, *narrow)
        if isinstance(first, PartVerdict):
            return first
        if isinstance(second, PartVerdict):
            return second
        gains = (f"{x.mean:.4g} ({x.larger} - {x.smaller})" for x in (first, second))
        why = " > ".join(gains)
        why += f" {'+' if by > 0 else '-'} {abs(by):g}" if by else ""
        error = _joint_error(first.error, second.error)
        return _verdict(first.mean - second.mean - by, error, why)

    return part


def rising(row: str, columns: tuple[str, ...], *, down: bool = False) -> tuple[Part, ...]:
    """Claim that a row's numbers go up (or down) from each column to the next."""
    return tuple(
        more((row, a), (row, b)) if down else more((row, b), (row, a))
        for a, b in pairwise(columns)
    )


class _Difference(NamedTuple):
    """How far one number is above another, with both in words."""

    mean: float
    error: float | None
    larger: str
    smaller: str


def _difference(
    numbers: Numbers, larger: Place, smaller: Place
) -> _Difference | PartVerdict:
    """Return how far one number is above another, or which of them is missing."""
    first, second = _find(numbers, *larger), _find(numbers, *smaller)
    if first is None or second is None:
        return _missing(*(larger if first is None else smaller))
    words = f"{', '.join(larger)}: {first}", f"{', '.join(smaller)}: {second}"
    same_seeds = first.seeds == second.seeds and len(first.values) == len(second.values)
    if larger[0] == smaller[0] and same_seeds:
        pairs = zip(first.values, second.values, strict=True)
        paired = Measured(values=tuple(a - b for a, b in pairs))
        return _Difference(paired.mean, paired.error, *words)
    error = _joint_error(first.error, second.error)
    return _Difference(first.mean - second.mean, error, *words)


def _joint_error(first: float | None, second: float | None) -> float | None:
    """Return the standard error of a difference, if those of both numbers are known."""
    return None if first is None or second is None else hypot(first, second)


def _verdict(difference: float, error: float | None, why: str) -> PartVerdict:
    """Return the verdict on a difference that is claimed to be positive."""
    if error is None or not isfinite(difference):
        return PartVerdict("cannot be told", why)
    clear = abs(difference) / error if error else inf
    if abs(difference) <= 2 * error:
        return PartVerdict("cannot be told", why, clear)
    return PartVerdict("holds" if difference > 0 else "does not hold", why, clear)


def _find(numbers: Numbers, row: str, column: str) -> Measured | None:
    return numbers.get(row, {}).get(column)


def _missing(row: str, column: str) -> PartVerdict:
    return PartVerdict("cannot be told", f"{row}, {column}: not measured")
