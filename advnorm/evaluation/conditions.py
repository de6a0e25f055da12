"""One column of a robustness table: what is done to each image, and who wins.

A cell is named by a string: see :mod:`advnorm.evaluation.condition_names`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from math import inf

import torch
from torch import Tensor

from advnorm.attacks import AIMS, ATTACKS, FALLBACKS, LogitsFn
from advnorm.bounds.methods import METHODS
from advnorm.draws import Draws
from advnorm.evaluation.condition_names import NATURAL, SUITES, Name, family_of, parse
from advnorm.evaluation.corruptions import corruption, expanded
from advnorm.evaluation.stages import Attacker, Judged, natural, worst_case
from advnorm.evaluation.step_curve import Path, along
from advnorm.records import Setting, ThreatRecord, result_key
from advnorm.threat import Bounds, Threat

_CURVE_STEP = 1 / 16
"""Of eps: xie2020, section 3, steps by 1 in a ball of 16."""
_QUERIES = 5000
"""AutoAttack's for Square, on a schedule for 10,000; a shorter search goes through all of
the schedule, or its squares would hardly shrink."""


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
    counts: tuple[int, ...] = ()
    """The step counts of a curve; empty for anything else."""

    @property
    def searches(self) -> bool:
        """Whether an adversary looks for something: not when clean, nor at radius 0."""
        return bool(self.attackers) and self.threat is not None and self.threat.eps > 0

    @property
    def proves(self) -> bool:
        """Whether a certificate alone decides."""
        return self.certificate is not None and not self.attackers

    def notes(self, classes: int) -> tuple[str, ...]:
        """Say which of its attacks fall back to something else with so many classes."""
        found = ((name, FALLBACKS.get(family_of(name))) for name in self.attackers)
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
    ``corruptions`` leaves out those that need colours where there are none. What cannot
    attack such images, or in such a norm, is refused before any of the others has run.
    """
    names = expanded(names, shape)
    _refuse_repeats(names, "attack {!r} is named twice: leave one out")
    whole = {*SUITES, *METHODS}
    parsed = {name: None if name in whole else parse(name) for name in names}
    _refuse_unfit(names, threats, shape)
    made = []
    for text, name in parsed.items():
        if text in METHODS:
            made += [Cell(text, natural(_unchanged), t, certificate=text) for t in threats]
        elif name is None:
            made += [_suite(text, threat, step_ratio=step_ratio) for threat in threats]
        elif name.family in NATURAL:
            made.append(_natural(name, bounds))
        else:
            made += [_attack(name, threat, step_ratio=step_ratio) for threat in threats]
    _refuse_repeats(
        (cell.key for cell in made),
        "two radii share the result {!r} (eps has 4 digits there): leave one out",
    )
    return made


def _refuse_unfit(
    names: Sequence[str], threats: Sequence[Threat], shape: Sequence[int] | None
) -> None:
    attacked = [threat for threat in threats if threat.eps > 0]
    for name in names if attacked else ():
        families = {part.partition("-")[0] for part in SUITES.get(name, (name,))}
        if "square" in families and shape is not None and len(shape) != 3:
            raise ValueError(
                f"{name}: Square Attack changes squares of pixels and needs images of "
                f"channels, height and width, not of shape {tuple(shape)}: name attacks "
                "without it"
            )
        if "cw" in families and any(threat.name != "l2" for threat in attacked):
            raise ValueError(
                f"{name}: cw minimizes the L2 distance and says nothing about another "
                "ball: use an L2 threat, or another attack"
            )


def attackers_of(name: str, threat: Threat, *, step_ratio: float = 2.5) -> list[Attacker]:
    """Return the attacks of one name or suite at one threat, in their order."""
    parsed = [parse(part) for part in SUITES.get(name, (name,))]
    if any(part.family in NATURAL for part in parsed):
        raise ValueError(f"{name!r} has no adversary: name an attack, such as 'pgd-40'")
    return [_attacker(part, threat, step_ratio=step_ratio) for part in parsed]


def _refuse_repeats(keys: Iterable[str], sentence: str) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(sentence.format(key))
        seen.add(key)


def _natural(name: Name, bounds: Bounds) -> Cell:
    if name.family == "clean":
        return Cell(name.text, natural(_unchanged))
    if name.family == "corruption":
        return Cell(
            name.text,
            natural(corruption(name.corruption, name.severity, bounds)),
            settings={"corruption": name.corruption, "severity": name.severity},
        )
    around = (-inf, inf) if "unclipped" in name.options else bounds
    tile = int(name.options.get("tile") or 1)
    settings: dict[str, Setting] = {"sigma": name.sigma}
    return Cell(
        name.text,
        natural(partial(_noise, sigma=name.sigma, bounds=around, tile=tile)),
        settings=settings | ({"tile": tile} if tile > 1 else {}),
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


def _attack(name: Name, threat: Threat, *, step_ratio: float) -> Cell:
    attacker = _attacker(name, threat, step_ratio=step_ratio)
    if not name.counts:
        judge = worst_case([attacker], threat)
        return Cell(name.text, judge, threat, attacker.settings, (name.text,))
    path = Path(
        name.path,
        name.counts,
        restarts=name.restarts,
        step_size=_step_size(name, threat, step_ratio=step_ratio),
        aim=AIMS[name.target],
        clean_start=name.clean_start,
        last="last" in name.options,
    )
    told = {"counts": " ".join(map(str, path.counts)), "iterate": path.iterate}
    settings = {**attacker.settings, **told}
    judge, by = along(path, threat), (name.text,)
    return Cell(name.text, judge, threat, settings, by, counts=name.counts)


def _attacker(name: Name, threat: Threat, *, step_ratio: float) -> Attacker:
    function = ATTACKS[name.family]
    known = signature(function).parameters
    settings: dict[str, Setting] = {}
    if "steps" in known:
        settings["steps"] = name.steps
    if "horizon" in known and name.steps < _QUERIES:
        settings["horizon"] = name.steps
    if "step_size" in known:
        settings["step_size"] = _step_size(name, threat, step_ratio=step_ratio)
    if "clean" in name.options:
        settings["clean_start"] = name.clean_start
    aims = {"aim": AIMS[name.target]} if name.target != "none" else {}

    def attack(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        return function(logits_fn, clean, labels, threat, draws=draws, **settings, **aims)

    told: dict[str, Setting] = {"target": name.target} if aims else {}
    told |= {"restarts": name.restarts, **settings}
    return Attacker(name.text, attack, name.restarts, told, name.path)


def _step_size(name: Name, threat: Threat, *, step_ratio: float) -> float:
    """Return the length of a step: as the name says, else a share of eps."""
    length, ratio = name.options.get("step"), name.options.get("ratio")
    if length is not None:
        return length
    if name.counts:
        return _CURVE_STEP * threat.eps
    return (ratio or step_ratio) * threat.eps / name.steps


def _unchanged(clean: Tensor, draws: Draws) -> Tensor:
    return clean


def _noise(
    clean: Tensor, draws: Draws, *, sigma: float, bounds: Bounds, tile: int
) -> Tensor:
    """Add Gaussian noise and clip to the bounds: a model is given valid images only.

    Papers that do not clip (galloway2019, Table 1) are met by ``noise-1+unclipped``, and
    noise that an image had before it was enlarged (Tables 6 and 7) by ``+tile=PIXELS``.
    """
    draws, shape = draws.stream("noise"), tuple(clean.shape[1:])
    if tile == 1:
        noise = draws.normal(*shape, dtype=clean.dtype)
    else:
        noise = _enlarged_noise(shape, draws, tile, clean.dtype)
    return (clean + sigma * noise).clamp_(*bounds)


def _enlarged_noise(
    shape: tuple[int, ...], draws: Draws, tile: int, dtype: torch.dtype
) -> Tensor:
    """Draw one value for each tile of ``tile x tile`` pixels."""
    *front, height, width = shape
    if not front or height % tile or width % tile:
        size = "x".join(map(str, shape))
        raise ValueError(f"images of {size} have no tiles of {tile}x{tile} pixels")
    small = draws.normal(*front, height // tile, width // tile, dtype=dtype)
    return small.repeat_interleave(tile, -1).repeat_interleave(tile, -2)
