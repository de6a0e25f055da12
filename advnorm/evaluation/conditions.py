"""Conditions: one way each in which samples are tested, and a column of a table.

A condition is named by a string: see :mod:`advnorm.evaluation.condition_names`.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from advnorm.attacks import GOALS, ORDERS, AttackName
from advnorm.bounds.box import CERTIFIED_NORMS, refuse_uncertified
from advnorm.bounds.methods import METHODS
from advnorm.data.corruptions import CORRUPTIONS, corrupt
from advnorm.draws import Draws
from advnorm.evaluation.condition_names import (
    RADII,
    CertificateName,
    ConditionName,
    NaturalName,
    SuiteName,
    expand_corruptions,
    parse_attacks,
    parse_condition,
)
from advnorm.evaluation.radii import (
    CURVE,
    RadiusAttack,
    RadiusSearch,
    with_certificate,
)
from advnorm.evaluation.stages import (
    CLEAN,
    AttackSearch,
    BoundAttack,
    Certificate,
    NaturalChange,
    Stage,
    StepCurve,
)
from advnorm.folding import SearchPrecision
from advnorm.records import (
    ConditionKind,
    RadiiSummary,
    Setting,
    ThreatRecord,
    Verdicts,
    draws_note,
    result_key,
    summarize_radii,
)
from advnorm.registry import unknown
from advnorm.threat import Bounds, Threat

if TYPE_CHECKING:
    from advnorm.evaluation.adaptation import BoundAdaptation

_QUERIES = 5000
"""AutoAttack's for Square, on a schedule for 10,000; a shorter search goes through all of
the schedule, or its squares would hardly shrink."""


@dataclass(frozen=True)
class Condition:
    """One way in which samples are tested."""

    name: str
    kind: ConditionKind
    change: NaturalChange = CLEAN
    stages: tuple[Stage, ...] = ()
    threat: Threat | None = None
    settings: dict[str, Setting] = field(default_factory=dict)
    attacks: tuple[AttackName, ...] = ()
    precision: SearchPrecision = "float32"
    """Of the passes of its searches; verdicts are in the model's own."""
    diameter: float | None = None
    """Of radii: the largest distance of two valid images."""
    adaptation: "BoundAdaptation | None" = None
    """What its search passes in place of the model."""

    @property
    def searches(self) -> bool:
        """Whether an adversary looks for something: not when clean, nor at radius 0."""
        return bool(self.attacks) and self.threat is not None and self.threat.eps > 0

    @property
    def needs_gradients(self) -> bool:
        """Whether an attack follows gradients."""
        return any(name.entry.needs == "gradients" for name in self.attacks)

    @property
    def certifies(self) -> bool:
        """Whether a certificate is tried, alone or before attacks."""
        return any(isinstance(stage, Certificate) for stage in self.stages)

    @property
    def counts(self) -> tuple[int, ...]:
        """The step counts of a curve; empty for anything else."""
        return self.attacks[0].counts if self.kind == "curve" else ()

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

    def summary(self, verdicts: Verdicts) -> RadiiSummary | None:
        """Return what the brackets of radii say together; ``None`` for anything else."""
        if self.name != RADII or self.diameter is None or not verdicts.radii:
            return None
        return summarize_radii(verdicts.radii, diameter=self.diameter)

    def notes(self, classes: int) -> tuple[str, ...]:
        """Say which of its attacks use a fallback with this number of classes."""
        reasons = ((name.text, name.entry.fallback(classes)) for name in self.attacks)
        own = self.adaptation.notes if self.adaptation else ()
        return (*(f"{name}: {reason}" for name, reason in reasons if reason), *own)

    def result_fields(self, verdicts: Verdicts, classes: int) -> dict[str, Any]:
        """Return the fields of a :class:`~advnorm.records.Result` that it decides."""
        (only,) = self.attacks if len(self.attacks) == 1 else (None,)
        draws = verdicts.draws_summary()
        return {
            "condition": self.name,
            "kind": self.kind,
            "attack": only.entry.name if only else None,
            "steps": only.steps if only else None,
            "corruption": self.settings.get("corruption"),
            "severity": self.settings.get("severity"),
            "settings": self.settings,
            "threat": self.threat_record,
            "accuracy": verdicts.accuracy(),
            "curve": verdicts.accuracies(self.counts),
            "radii": self.summary(verdicts),
            "draws": draws,
            "notes": (*self.notes(classes), *([draws_note(draws)] if draws else [])),
        }


def parse_conditions(
    names: Sequence[str],
    threats: Sequence[Threat],
    bounds: Bounds,
    *,
    step_ratio: float = 2.5,
    shape: Sequence[int] | None = None,
) -> list[Condition]:
    """Make a condition of each natural name, and of each attack at each threat.

    Every name is checked, also where there are no threats. ``shape`` is that of an image:
    ``corruptions`` leaves out those that need colours where there are none. What cannot
    attack such images, or in such a norm, is refused before any of the others has run.
    """
    names = expand_corruptions(names, shape)
    _refuse_repeats(names, "condition {!r} is named twice: leave one out")
    parsed = [parse_condition(name) for name in names]
    for name in parsed:
        _check_attacks(name, threats, shape)
    conditions: list[Condition] = []
    for name in parsed:
        if isinstance(name, NaturalName):
            conditions.append(_natural_condition(name, bounds))
        elif isinstance(name, CertificateName):
            conditions += [certificate_condition(name.text, t) for t in threats]
        else:
            chosen = largest_of_each_norm(threats) if name.text == RADII else threats
            conditions += [_attack_condition(name, t, step_ratio, shape) for t in chosen]
    _refuse_repeats(
        (condition.key for condition in conditions),
        "two radii share the result {!r} (eps has 4 digits there): leave one out",
    )
    return conditions


def largest_of_each_norm(threats: Sequence[Threat]) -> list[Threat]:
    """Return one threat of each norm: radii need no second one."""
    ordered = sorted(threats, key=lambda threat: threat.eps)
    return list({threat.name: threat for threat in ordered}.values())


def certificate_condition(method: str, threat: Threat) -> Condition:
    """Return the condition under which ``method`` alone decides: certified or not."""
    refuse_uncertified(threat)
    stage = Certificate(method, threat, decides=True)
    return Condition(method, "certificate", stages=(stage,), threat=threat)


def search_in(conditions: Sequence[Condition], precision: str) -> list[Condition]:
    """Let attacks pass in ``precision``; the results record it where it is not the default.

    ``float32`` means the model's own precision.
    """
    if precision not in get_args(SearchPrecision):
        names = " or ".join(map(repr, get_args(SearchPrecision)))
        raise ValueError(f"the precision of searches is {names}, not {precision!r}")
    if precision == "float32":
        return list(conditions)
    return [
        replace(c, precision="bfloat16", settings={**c.settings, "precision": precision})
        if c.searches and c.name != RADII  # at the boundary every bit counts
        else c
        for c in conditions
    ]


def certify_first(conditions: Sequence[Condition], method: str) -> list[Condition]:
    """Return the conditions with a certificate before the attacks, if not ``"none"``.

    A sample that it covers needs no attack.
    """
    if method == "none":
        return list(conditions)
    if method not in METHODS:
        raise unknown("certificate", method, ["none", *METHODS])
    for condition in conditions:
        if condition.attacks and condition.threat:
            refuse_uncertified(condition.threat)
    return [_certified_first(condition, method) for condition in conditions]


def _certified_first(condition: Condition, method: str) -> Condition:
    if not (condition.attacks and condition.threat):
        return condition
    stages: tuple[Stage, ...] = tuple(
        with_certificate(stage, method) if isinstance(stage, RadiusSearch) else stage
        for stage in condition.stages
    )
    if condition.name != RADII:
        stages = (Certificate(method, condition.threat), *stages)
    return replace(
        condition, stages=stages, settings=condition.settings | {"certificate": method}
    )


def bind_attacks(
    names: Sequence[AttackName], threat: Threat, *, step_ratio: float = 2.5
) -> list[BoundAttack]:
    """Return attacks ready to run in one threat, in their order."""
    return [_bind(name, threat, step_ratio) for name in names]


def attack_search(name: str, threat: Threat, *, step_ratio: float = 2.5) -> AttackSearch:
    """Return the search of one attack or suite by name."""
    names = parse_attacks(name, threat.name)
    return AttackSearch(bind_attacks(names, threat, step_ratio=step_ratio), threat)


def merged_settings(attacks: Sequence[BoundAttack]) -> dict[str, Setting]:
    """Return the settings of one attack, or those of several under their names."""
    if len(attacks) == 1:
        return dict(attacks[0].settings)
    return {
        f"{attack.name}.{key}": value
        for attack in attacks
        for key, value in attack.settings.items()
    }


def _check_attacks(
    name: ConditionName, threats: Sequence[Threat], shape: Sequence[int] | None
) -> None:
    searched = [threat for threat in threats if threat.eps > 0]
    if not searched or isinstance(name, NaturalName | CertificateName):
        return
    for threat in searched:
        for attack in _attacks_in(name, threat):
            try:
                attack.entry.check([threat], shape)
            except ValueError as error:
                raise ValueError(f"{name.text}: {error}") from None


def _attacks_in(name: SuiteName | AttackName, threat: Threat) -> tuple[AttackName, ...]:
    return name.attacks_in(threat.name) if isinstance(name, SuiteName) else (name,)


def _refuse_repeats(keys: Iterable[str], sentence: str) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(sentence.format(key))
        seen.add(key)


def _natural_condition(name: NaturalName, bounds: Bounds) -> Condition:
    if name.family == "clean":
        return Condition(name.text, "clean")
    if name.family == "corruption":
        kind, level = name.corruption, name.severity
        CORRUPTIONS[kind]  # an unknown name is refused before any image is seen
        return Condition(
            name.text,
            "corruption",
            NaturalChange(partial(corrupt, name=kind, severity=level, bounds=bounds)),
            settings={"corruption": kind, "severity": level},
        )
    around = bounds if name.clipped else (-inf, inf)
    settings: dict[str, Setting] = {"sigma": name.sigma}
    return Condition(
        name.text,
        "noise",
        NaturalChange(partial(_noise, sigma=name.sigma, bounds=around, tile=name.tile)),
        settings=settings | ({"tile": name.tile} if name.tile > 1 else {}),
    )


def _attack_condition(
    name: SuiteName | AttackName,
    threat: Threat,
    step_ratio: float,
    shape: Sequence[int] | None,
) -> Condition:
    """Make one condition of an attack, of all attacks of a suite, or of a curve."""
    attacks = _attacks_in(name, threat)
    bound = bind_attacks(attacks, threat, step_ratio=step_ratio)
    settings: dict[str, Setting] = merged_settings(bound)
    stage: Stage = AttackSearch(bound, threat)
    if name.text == RADII:
        search = _radius_search(attacks, threat, step_ratio)
        stage, settings["certificate"] = search, search.certificate or "none"
    if isinstance(name, SuiteName) or not name.counts:
        kind: ConditionKind = "suite" if isinstance(name, SuiteName) else "attack"
        return Condition(
            name.text,
            kind,
            stages=(stage,),
            threat=threat,
            settings=settings,
            attacks=attacks,
            diameter=None if shape is None else threat.diameter(shape),
        )
    curve = StepCurve(name, threat, name.step_size(threat.eps, ratio=step_ratio))
    settings["counts"] = " ".join(map(str, name.counts))
    settings["iterate"] = "last" if name.last else "worst"
    return Condition(
        name.text,
        "curve",
        stages=(curve,),
        threat=threat,
        settings=settings,
        attacks=attacks,
    )


def _balls(threat: Threat) -> list[Threat]:
    """Return the balls of the curve, as far as the norm has balls so large."""
    if threat.eps == 0:
        return []
    balls = [threat.scaled(factor) for factor in CURVE if factor <= 1]
    for factor in (factor for factor in CURVE if factor > 1):
        with suppress(ValueError):  # larger than the range of a pixel
            balls.append(threat.scaled(factor))
    return list(dict.fromkeys(balls))


def _radius_search(
    names: Sequence[AttackName], threat: Threat, step_ratio: float
) -> RadiusSearch:
    """Return the search for radii: an attack of a given ball runs along the curve."""
    balls = _balls(threat)
    attacks = [
        RadiusAttack(
            name,
            tuple((ball, _bind(name, ball, step_ratio)) for ball in balls)
            if name.entry.nearest is None
            else (),
        )
        for name in names
    ]
    has_certificates = threat.name in CERTIFIED_NORMS
    return RadiusSearch(attacks, threat, "ibp" if has_certificates else None)


def _bind(name: AttackName, threat: Threat, step_ratio: float) -> BoundAttack:
    parameters = name.entry.parameters
    settings: dict[str, Setting] = {}
    if "steps" in parameters:
        settings["steps"] = name.steps
    if "horizon" in parameters and name.steps < _QUERIES:
        settings["horizon"] = name.steps
    if "step_size" in parameters:
        settings["step_size"] = name.step_size(threat.eps, ratio=step_ratio)
    if "clean" in name.options:
        settings["clean_start"] = name.clean_start
    goal = {"goal": GOALS[name.target]} if name.target != "none" else {}
    order = {"order": ORDERS[name.order]} if name.order != "likeliest" else {}
    attack = partial(name.entry.function, threat=threat, **settings, **goal, **order)
    recorded: dict[str, Setting] = {"target": name.target} if goal else {}
    recorded |= {"order": name.order} if order else {}
    recorded |= {"restarts": name.restarts, **settings}
    return BoundAttack(name.text, attack, name.restarts, recorded, name.random_stream)


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
