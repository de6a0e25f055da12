"""How often an evaluation does what: its conditions as calls on images with passes."""

from collections.abc import Iterator
from typing import NamedTuple

from advnorm.attacks import AttackName
from advnorm.bounds.verdicts import CHEAPEST_FIRST
from advnorm.evaluation import Condition
from advnorm.evaluation.condition_names import RADII
from advnorm.evaluation.stages import Certificate
from advnorm.threat import Threat

_LEAVES_EARLY = ("apgd", "apgd_ce", "apgd_dlr", "apgd_t", "fab_t", "square")
"""Attacks that drop a sample at the first image that breaks it."""
_EARLY = 0.1
"""The share of its steps after which such a sample is taken to be broken."""
CLEAN = "clean"


class Accuracies(NamedTuple):
    """What share of the samples a model is taken to classify correctly, and to defend."""

    clean: float = 1.0
    robust: float = 1.0


ALL_ROBUST = Accuracies()
"""With these an evaluation takes longest."""


class Piece(NamedTuple):
    """Calls of one kind of work, each on some images with passes for each image."""

    work: str
    rows: float
    passes: int = 1
    calls: float = 1


def natural_work(condition: Condition) -> str:
    """Return the name of the pass that a condition begins with."""
    if condition.kind == "corruption":
        return f"corruption-{condition.settings['corruption']}"
    return "noise" if condition.kind == "noise" else CLEAN


def attack_work(attack: AttackName, condition: Condition) -> str:
    """Return the name of an attack's work: without the number of steps and restarts.

    >>> from advnorm.evaluation import parse_conditions
    >>> from advnorm.threat import Linf
    >>> (condition,) = parse_conditions(["pgd-20x3+random"], [Linf(0.1)], (0, 1))
    >>> attack_work(condition.attacks[0], condition)
    'pgd+random linf float32'
    """
    assert condition.threat is not None
    words = "+".join([attack.entry.name, *(w for w in attack.options if w != "last")])
    return f"{words} {condition.threat.name} {condition.precision}"


def certificate_work(method: str, threat: Threat) -> str:
    """Return the name of a certificate's work, beyond that of ``ibp`` before it."""
    return f"{method} {threat.name} {threat.eps:.4g}"


def methods_until(method: str) -> tuple[str, ...]:
    """Return the methods that are tried in turn, each on what those before it left.

    >>> methods_until("crown-ibp")
    ('ibp', 'crown-ibp')
    """
    return CHEAPEST_FIRST[: CHEAPEST_FIRST.index(method) + 1]


def pieces(
    condition: Condition, samples: int, batch_size: int, assumed: Accuracies
) -> Iterator[Piece]:
    """Yield the work of a condition, batch by batch."""
    whole, left = divmod(samples, batch_size)
    for rows, batches in ((batch_size, whole), (left, 1)):
        if rows and batches:
            for piece in _of_batch(condition, rows, assumed):
                yield piece._replace(calls=piece.calls * batches)


def _of_batch(condition: Condition, rows: int, assumed: Accuracies) -> Iterator[Piece]:
    yield Piece(natural_work(condition), rows)
    correct, robust = rows * assumed.clean, rows * min(assumed.clean, assumed.robust)
    for stage in condition.stages:
        if isinstance(stage, Certificate):
            for method in methods_until(stage.method):
                yield Piece(certificate_work(method, stage.threat), correct)
    if condition.name == RADII:
        yield Piece(RADII, rows)
    elif condition.searches:
        yield from _attacks(condition, correct, robust)


def _attacks(condition: Condition, correct: float, robust: float) -> Iterator[Piece]:
    """Yield the attacks in their order: the first breaks what any of them breaks."""
    attacked = correct
    for attack in condition.attacks:
        work, passes = attack_work(attack, condition), attack.entry.passes(attack.steps)
        broken = attacked - robust
        if attack.entry.name in _LEAVES_EARLY:
            broken *= _EARLY
        yield Piece(work, robust + broken, passes)
        if attack.restarts > 1:
            yield Piece(work, robust, passes, attack.restarts - 1)
        attacked = robust
