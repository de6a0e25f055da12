r"""Claims as statements that a machine can check, given numbers over seeds.

A comparison is told when the numbers are further apart than two standard errors of their
difference; between that it cannot be told. A claim of several parts holds when each of
them holds, and does not hold as soon as one does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, isfinite

from advnorm.records import Claimed, Measured, Scale, Verdict

Numbers = Mapping[str, Mapping[str, Measured]]
"""By row and column."""


@dataclass(frozen=True)
class Told:
    """Whether a part of a claim holds, and by which numbers."""

    verdict: Verdict
    why: str


Part = Callable[[Numbers], Told]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, as parts that all have to hold."""

    text: str
    parts: tuple[Part, ...]
    scales: tuple[Scale, ...] = ("reduced", "full")
    """Where the claim can be judged at all."""

    def judge(self, numbers: Numbers, scale: Scale) -> Claimed:
        """Say what becomes of the claim."""
        if scale not in self.scales:
            why = f"at scale {scale} only the path is tested"
            return Claimed(text=self.text, verdict="cannot be told", why=why)
        told = [part(numbers) for part in self.parts]
        return Claimed(
            text=self.text,
            verdict=worst([one.verdict for one in told]),
            why="; ".join(one.why for one in told),
        )


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the verdict of all parts together.

    >>> worst(["holds", "cannot be told"])
    'cannot be told'
    """
    order: tuple[Verdict, ...] = ("does not hold", "cannot be told")
    return next((verdict for verdict in order if verdict in verdicts), "holds")


def above(row: str, column: str, limit: float) -> Part:
    """Claim that a number is above a limit."""

    def part(numbers: Numbers) -> Told:
        one = _find(numbers, row, column)
        if one is None:
            return _missing(row, column)
        why = f"{row}, {column}: {one} against {limit:g}"
        return Told(_sign(one.mean - limit, one.error), why)

    return part


def below(row: str, column: str, limit: float) -> Part:
    """Claim that a number is below a limit."""

    def part(numbers: Numbers) -> Told:
        one = _find(numbers, row, column)
        if one is None:
            return _missing(row, column)
        why = f"{row}, {column}: {one} against {limit:g}"
        return Told(_sign(limit - one.mean, one.error), why)

    return part


def more(larger: tuple[str, str], smaller: tuple[str, str], *, by: float = 0.0) -> Part:
    """Claim that one number (row, column) is larger than another, by more than ``by``."""

    def part(numbers: Numbers) -> Told:
        one, other = _find(numbers, *larger), _find(numbers, *smaller)
        if one is None or other is None:
            return _missing(*(larger if one is None else smaller))
        named = f"{', '.join(larger)}: {one}; {', '.join(smaller)}: {other}"
        why = f"{named}; claimed to be {f'{by:g} ' if by else ''}apart"
        return Told(_sign(one.mean - other.mean - by, _joint(one, other)), why)

    return part


def within(larger: tuple[str, str], smaller: tuple[str, str], by: float) -> Part:
    """Claim that one number (row, column) is less than ``by`` above another."""

    def part(numbers: Numbers) -> Told:
        one, other = _find(numbers, *larger), _find(numbers, *smaller)
        if one is None or other is None:
            return _missing(*(larger if one is None else smaller))
        named = f"{', '.join(larger)}: {one}; {', '.join(smaller)}: {other}"
        apart = one.mean - other.mean
        return Told(
            _sign(by - apart, _joint(one, other)), f"{named}; less than {by:g} apart"
        )

    return part


def rising(row: str, columns: tuple[str, ...], *, down: bool = False) -> tuple[Part, ...]:
    """Claim that a row's numbers go up (or down) from each column to the next."""
    return tuple(
        more((row, a), (row, b)) if down else more((row, b), (row, a))
        for a, b in pairwise(columns)
    )


def _joint(one: Measured, other: Measured) -> float | None:
    """Return the standard error of a difference, where both have one."""
    if one.error is None or other.error is None:
        return None
    return hypot(one.error, other.error)


def _sign(difference: float, error: float | None) -> Verdict:
    if error is None or not isfinite(difference) or abs(difference) <= 2 * error:
        return "cannot be told"
    return "holds" if difference > 0 else "does not hold"


def _find(numbers: Numbers, row: str, column: str) -> Measured | None:
    return numbers.get(row, {}).get(column)


def _missing(row: str, column: str) -> Told:
    return Told("cannot be told", f"{row}, {column}: not measured")
