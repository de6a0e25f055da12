r"""Claims as statements that a machine can check, given numbers over seeds.

A comparison is told when the numbers are further apart than two standard errors of their
difference; between that it cannot be told. Two numbers of a row are compared seed by seed,
since they are often of the same runs. A claim of several parts holds when each of
them holds, and does not hold as soon as one does not. Its reason shows each part as the
inequality that is claimed, with a mark before it; of many parts, those that decide.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, inf, isfinite
from typing import NamedTuple

from advnorm.records import MARKS, ClaimResult, Measured, Scale, Verdict, counted

SHOWN = 3
"""Parts of a claim that its reason shows, if it has more."""

Numbers = Mapping[str, Mapping[str, Measured]]
"""By row and column."""


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
    """Where the claim can be judged at all."""

    def check(self, numbers: Numbers, scale: Scale) -> ClaimResult:
        """Say what becomes of the claim."""
        if scale not in self.scales:
            smoke = "at scale smoke only the path is tested"
            why = smoke if scale == "smoke" else f"it is about scale {self.scales[0]}"
            return ClaimResult(
                text=self.text, verdict="cannot be told", why=why, applicable=False
            )
        parts = self.check_parts(numbers)
        return ClaimResult(text=self.text, verdict=worst(parts), why=reason(parts))

    def check_parts(self, numbers: Numbers) -> list[PartVerdict]:
        """Say what becomes of each part."""
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
    """Return the places of all parts, or of many, the closest calls that decide.

    >>> parts = [PartVerdict("holds", "", clear=n) for n in (9, 3, 4, 5)]
    >>> deciding(parts), deciding([*parts, PartVerdict("does not hold", "", clear=7)])
    ([1, 2, 3], [4])
    """
    if len(parts) <= SHOWN:
        return list(range(len(parts)))
    deciding = [n for n, part in enumerate(parts) if part.verdict == worst(parts)]
    return sorted(sorted(deciding, key=lambda n: parts[n].clear)[:SHOWN])


def worst(parts: Sequence[PartVerdict]) -> Verdict:
    """Return the verdict of all parts together.

    >>> worst([PartVerdict("holds", ""), PartVerdict("cannot be told", "")])
    'cannot be told'
    """
    verdicts, order = {part.verdict for part in parts}, ("does not hold", "cannot be told")
    return next((verdict for verdict in order if verdict in verdicts), "holds")


def above(row: str, column: str, limit: float) -> Part:
    """Claim that a number is above a limit."""

    def part(numbers: Numbers) -> PartVerdict:
        one = _find(numbers, row, column)
        if one is None:
            return _missing(row, column)
        return _verdict(one.mean - limit, one.error, f"{row}, {column}: {one} > {limit:g}")

    return part


def below(row: str, column: str, limit: float) -> Part:
    """Claim that a number is below a limit."""

    def part(numbers: Numbers) -> PartVerdict:
        one = _find(numbers, row, column)
        if one is None:
            return _missing(row, column)
        return _verdict(limit - one.mean, one.error, f"{row}, {column}: {one} < {limit:g}")

    return part


def more(larger: tuple[str, str], smaller: tuple[str, str], *, by: float = 0.0) -> Part:
    """Claim that one number (row, column) is larger than another, by more than ``by``."""

    def part(numbers: Numbers) -> PartVerdict:
        apart = _difference(numbers, larger, smaller)
        if isinstance(apart, PartVerdict):
            return apart
        why = f"{apart.one} > {apart.other}{f' + {by:g}' if by else ''}"
        return _verdict(apart.mean - by, apart.error, why)

    return part


def within(larger: tuple[str, str], smaller: tuple[str, str], by: float) -> Part:
    """Claim that one number (row, column) is less than ``by`` above another."""

    def part(numbers: Numbers) -> PartVerdict:
        apart = _difference(numbers, larger, smaller)
        if isinstance(apart, PartVerdict):
            return apart
        why = f"{apart.one} < {apart.other} + {by:g}"
        return _verdict(by - apart.mean, apart.error, why)

    return part


def wider(
    wide: tuple[tuple[str, str], tuple[str, str]],
    narrow: tuple[tuple[str, str], tuple[str, str]],
    *,
    by: float = 0.0,
) -> Part:
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
        one, other = _difference(numbers, *wide), _difference(numbers, *narrow)
        if isinstance(one, PartVerdict):
            return one
        if isinstance(other, PartVerdict):
            return other
        both = one.error is not None and other.error is not None
        error = hypot(one.error or 0.0, other.error or 0.0) if both else None
        why = " > ".join(f"{x.mean:.4g} ({x.one} - {x.other})" for x in (one, other))
        why += f" {'+' if by > 0 else '-'} {abs(by):g}" if by else ""
        return _verdict(one.mean - other.mean - by, error, why)

    return part


def rising(row: str, columns: tuple[str, ...], *, down: bool = False) -> tuple[Part, ...]:
    """Claim that a row's numbers go up (or down) from each column to the next."""
    return tuple(
        more((row, a), (row, b)) if down else more((row, b), (row, a))
        for a, b in pairwise(columns)
    )


class _Difference(NamedTuple):
    mean: float
    error: float | None
    one: str
    other: str


def _difference(
    numbers: Numbers, one: tuple[str, str], other: tuple[str, str]
) -> _Difference | PartVerdict:
    """Return how far one number is above another, or which of them is missing."""
    first, second = _find(numbers, *one), _find(numbers, *other)
    if first is None or second is None:
        return _missing(*(one if first is None else other))
    named = f"{', '.join(one)}: {first}", f"{', '.join(other)}: {second}"
    alike = first.seeds == second.seeds and len(first.values) == len(second.values)
    if one[0] == other[0] and alike:
        pairs = zip(first.values, second.values, strict=True)
        each = Measured(values=tuple(a - b for a, b in pairs))
        return _Difference(each.mean, each.error, *named)
    both = first.error is not None and second.error is not None
    error = hypot(first.error or 0.0, second.error or 0.0) if both else None
    return _Difference(first.mean - second.mean, error, *named)


def _verdict(difference: float, error: float | None, why: str) -> PartVerdict:
    """Judge a difference that is claimed to be positive."""
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
