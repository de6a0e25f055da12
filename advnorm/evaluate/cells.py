"""One column of a robustness table: what is done to each image, and who wins.

A cell is named by a string: ``clean``, ``noise-0.25`` (standard deviation), ``fgsm``,
``bim-10`` (steps), ``pgd-50`` and ``pgd-50x5`` (five restarts), ``corruption-fog-3``
(severity), or a suite of attacks. A number that means nothing to its attack is refused.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks import ATTACKS, FALLBACKS, FROM_CLEAN, LogitsFn
from advnorm.certify.bounds import METHODS
from advnorm.draws import Draws
from advnorm.evaluate.corrupted import corruption, expanded
from advnorm.records import Setting, ThreatRecord, result_key
from advnorm.registry import unknown
from advnorm.threat import Bounds, Threat

Attack = Callable[[LogitsFn, Tensor, Tensor, Draws], Tensor]
STANDS = -1


class Judged(NamedTuple):
    """What became of a batch: the images as seen, predictions, still right or not.

    ``by`` is the number of the attack that broke a sample, else :data:`STANDS`, which also
    holds for one that was wrong from the start.
    """

    images: Tensor
    predictions: Tensor
    robust: Tensor
    by: Tensor


class Attacker(NamedTuple):
    """An attack of a cell, ready to run."""

    name: str
    attack: Attack
    restarts: int
    settings: dict[str, Setting]


@dataclass(frozen=True)
class Cell:
    """A named way to judge a batch."""

    name: str
    judge: Callable[[LogitsFn, Tensor, Tensor, Draws], Judged]
    threat: Threat | None = None
    settings: dict[str, Setting] = field(default_factory=dict)
    attackers: tuple[str, ...] = ()
    certificate: str | None = None
    """Which certificate is tried first; with no attackers it alone decides."""

    def notes(self, classes: int) -> tuple[str, ...]:
        """Say which of its attacks fall back to something else with so many classes."""
        found = ((name, FALLBACKS.get(_family(name))) for name in self.attackers)
        told = ((name, reason(classes)) for name, reason in found if reason)
        return tuple(f"{name}: {reason}" for name, reason in told if reason)

    @property
    def key(self) -> str:
        """The name of its result."""
        return result_key(self.name, self.threat_record)

    @property
    def threat_record(self) -> ThreatRecord | None:
        """The threat as a record."""
        threat = self.threat
        if threat is None:
            return None
        return ThreatRecord(norm=threat.name, eps=threat.eps, bounds=threat.bounds)


def cells(
    names: Sequence[str],
    threats: Sequence[Threat],
    bounds: Bounds,
    *,
    step_ratio: float = 2.5,
    shape: Sequence[int] | None = None,
) -> list[Cell]:
    """Make a cell of each natural name, and of each attack at each threat.

    Every name is checked, also where there are no threats. ``shape`` is that of an image:
    ``corruptions`` leaves out those that need colours where there are none.
    """
    names = expanded(names, shape)
    _refuse_repeats(names, "attack {!r} is named twice: leave one out")
    whole = {*SUITES, *METHODS}
    parsed = {name: None if name in whole else _parse(name) for name in names}
    made = []
    for text, name in parsed.items():
        if text in METHODS:
            made += [Cell(text, natural(_unchanged), t, certificate=text) for t in threats]
        elif name is None:
            made += [_suite(text, threat, step_ratio=step_ratio) for threat in threats]
        elif name.family in _NATURAL:
            made.append(_natural(name, bounds))
        else:
            made += [_attack(name, threat, step_ratio=step_ratio) for threat in threats]
    _refuse_repeats(
        (cell.key for cell in made),
        "two radii share the result {!r} (eps has 4 digits there): leave one out",
    )
    return made


def attackers_of(name: str, threat: Threat, *, step_ratio: float = 2.5) -> list[Attacker]:
    """Return the attacks of one name or suite at one threat, in their order."""
    parsed = [_parse(part) for part in SUITES.get(name, (name,))]
    if any(part.family in _NATURAL for part in parsed):
        raise ValueError(f"{name!r} has no adversary: name an attack, such as 'pgd-40'")
    return [_attacker(part, threat, step_ratio=step_ratio) for part in parsed]


def natural(change: Callable[[Tensor, Draws], Tensor]) -> Callable[..., Judged]:
    """Judge images that nobody chose: the prediction on the changed image counts."""

    def judge(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Judged:
        images = change(clean, draws)
        predictions = predict(logits_fn, images)
        stands = torch.full_like(predictions, STANDS)
        return Judged(images, predictions, predictions == labels, stands)

    return judge


def worst_case(attackers: Sequence[Attacker], threat: Threat) -> Callable[..., Judged]:
    """Judge by adversaries: one confirmed success of any of them breaks a sample.

    A sample that is wrong when clean is not attacked; a broken one is dropped at once. A
    success counts only if a fresh forward pass confirms it, inside the ball and the bounds.
    """
    runs = [
        (number, attacker.attack, (attacker.name, restart))
        for number, attacker in enumerate(attackers)
        for restart in range(attacker.restarts)
    ]

    def judge(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Judged:
        images, predictions = clean.clone(), predict(logits_fn, clean)
        robust, by = predictions == labels, torch.full_like(predictions, STANDS)
        for number, attack, stream in runs:
            rows = robust.nonzero().squeeze(1)
            if not len(rows):
                break
            x = attack(logits_fn, clean[rows], labels[rows], draws[rows].stream(*stream))
            guess = predict(logits_fn, x)
            broken = (guess != labels[rows]) & threat.contains(x, clean[rows])
            images[rows] = x
            predictions[rows[broken]] = guess[broken]
            by[rows[broken]] = number
            robust[rows[broken]] = False
        return Judged(images, predictions, robust, by)

    return judge


def predict(logits_fn: LogitsFn, images: Tensor) -> Tensor:
    """Return the class of the largest logit of each image."""
    with torch.no_grad():
        return logits_fn(images).argmax(1)


class _Name(NamedTuple):
    """A cell's name and the numbers in it."""

    text: str
    family: str
    steps: int | None
    restarts: int
    sigma: float
    corruption: str = ""
    severity: int = 0


def _parse(text: str) -> _Name:
    family, known = _family(text), [*_NATURAL, *ATTACKS, *SUITES, *METHODS]
    if family in SUITES:
        raise ValueError(f"{text!r} is not understood: the suite {family} takes no number")
    if family not in known:
        raise unknown("attack", family, known)
    numbers = _numbers(family)
    pattern = "".join(_NUMBERS[number].pattern for number in numbers)
    match = re.fullmatch(pattern, text.removeprefix(family))
    if not match:
        form = family + "".join(_NUMBERS[number].form for number in numbers)
        means = " and ".join(_NUMBERS[number].means for number in numbers)
        raise ValueError(
            f"{text!r} is not understood: write {form}, {means or 'without a number'}"
        )
    given = {key: value for key, value in match.groupdict().items() if value}
    return _Name(
        text,
        family,
        steps=int(given.get("steps", _steps(family))) if "steps" in numbers else None,
        restarts=int(given.get("restarts", 1)),
        sigma=float(given.get("sigma", 0.25)),
        corruption=given.get("corruption", ""),
        severity=int(given.get("severity", 0)),
    )


def _family(text: str) -> str:
    """Return a name without its numbers."""
    head = re.match(r"[a-z_]+?(?=-|x[0-9]|\Z)", text)
    return head[0] if head else text


def _numbers(family: str) -> list[str]:
    """Return which numbers may follow the name of a family, in their order."""
    if family in _NATURAL:
        return {"noise": ["sigma"], "corruption": ["corruption"]}.get(family, [])
    stepped = "steps" in signature(ATTACKS[family]).parameters
    return ["steps"] * stepped + ["restarts"] * (family not in FROM_CLEAN)


def _steps(family: str) -> int:
    """Return the steps that an attack takes where its name has no number."""
    default = signature(ATTACKS[family]).parameters["steps"].default
    return default if isinstance(default, int) else 10


def _refuse_repeats(keys: Iterable[str], sentence: str) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(sentence.format(key))
        seen.add(key)


def _natural(name: _Name, bounds: Bounds) -> Cell:
    if name.family == "clean":
        return Cell(name.text, natural(_unchanged))
    if name.family == "corruption":
        return Cell(
            name.text,
            natural(corruption(name.corruption, name.severity, bounds)),
            settings={"corruption": name.corruption, "severity": name.severity},
        )
    return Cell(
        name.text,
        natural(partial(_noise, sigma=name.sigma, bounds=bounds)),
        settings={"sigma": name.sigma},
    )


def _suite(name: str, threat: Threat, *, step_ratio: float) -> Cell:
    """Make one cell of all attacks of a suite, in their order."""
    attackers = attackers_of(name, threat, step_ratio=step_ratio)
    settings = {
        f"{attacker.name}.{key}": value
        for attacker in attackers
        for key, value in attacker.settings.items()
    }
    return Cell(name, worst_case(attackers, threat), threat, settings, tuple(SUITES[name]))


def _attack(name: _Name, threat: Threat, *, step_ratio: float) -> Cell:
    attacker = _attacker(name, threat, step_ratio=step_ratio)
    judge = worst_case([attacker], threat)
    return Cell(name.text, judge, threat, attacker.settings, (name.text,))


def _attacker(name: _Name, threat: Threat, *, step_ratio: float) -> Attacker:
    function, steps = ATTACKS[name.family], name.steps
    settings: dict[str, float] = {}
    if steps is not None:
        settings["steps"] = steps
        if "step_size" in signature(function).parameters:
            settings["step_size"] = step_ratio * threat.eps / steps

    def attack(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        return function(logits_fn, clean, labels, threat, draws=draws, **settings)

    return Attacker(
        name.text, attack, name.restarts, {"restarts": name.restarts, **settings}
    )


def _unchanged(clean: Tensor, draws: Draws) -> Tensor:
    return clean


def _noise(clean: Tensor, draws: Draws, *, sigma: float, bounds: Bounds) -> Tensor:
    """Add Gaussian noise and clip to the bounds: a model is given valid images only."""
    noise = draws.stream("noise").normal(*clean.shape[1:], dtype=clean.dtype)
    return (clean + sigma * noise).clamp_(*bounds)


_NATURAL = ("clean", "noise", "corruption")

_AUTO_ATTACK = ("apgd_ce-100", "apgd_t-100", "fab_t-100", "square-5000")
SUITES = {
    "quick": ("pgd-20", "apgd_ce-50"),
    "standard": _AUTO_ATTACK,
    "full": (*_AUTO_ATTACK, "apgd_dlr-100x5", "pgd-200x5"),
}
"""Attacks in turn, the worst case a sample; ``standard`` is AutoAttack's (Croce & Hein)."""


class _Number(NamedTuple):
    """How a number in a name is matched, and explained."""

    pattern: str
    form: str
    means: str


_NUMBERS = {
    "steps": _Number(
        r"(?:-(?P<steps>[1-9][0-9]{0,8}))?", "[-STEPS]", "STEPS a whole number from 1"
    ),
    "restarts": _Number(
        r"(?:x(?P<restarts>[1-9][0-9]{0,8}))?",
        "[xRESTARTS]",
        "RESTARTS a whole number from 1",
    ),
    "sigma": _Number(
        r"(?:-(?P<sigma>(?=[0-9.]*[1-9])[0-9]*\.?[0-9]+))?",
        "[-SIGMA]",
        "SIGMA a standard deviation > 0",
    ),
    "corruption": _Number(
        r"-(?P<corruption>[a-z_]+)-(?P<severity>[1-5])",
        "-NAME-SEVERITY",
        "NAME of 'advnorm list corruptions' and SEVERITY from 1 to 5",
    ),
}
