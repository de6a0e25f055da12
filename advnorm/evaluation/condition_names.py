"""The one parser of condition names; those of attacks are read by :mod:`advnorm.attacks`.

``clean``, ``noise-0.25`` (standard deviation), ``corruption-fog-3`` (severity), an attack
such as ``pgd-50x5``, a suite of attacks such as ``standard`` (AutoAttack's), or a
certificate such as ``crown``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from advnorm.attacks import ATTACKS, AttackName, parse_attack
from advnorm.attacks.names import NameForm, NameOption, NamePart, family_of, refusal
from advnorm.bounds.methods import METHODS
from advnorm.data.corruptions import COLOUR_ONLY, CORRUPTIONS, SEVERITIES
from advnorm.registry import unknown

_AUTO_ATTACK = ("apgd_ce-100", "apgd_t-100", "fab_t-100", "square-5000")
SUITES = {
    "quick": ("pgd-20", "apgd_ce-50"),
    "strong": ("apgd_ce-50", "apgd_t-20", "square-500"),
    "standard": _AUTO_ATTACK,
    "full": (*_AUTO_ATTACK, "apgd_dlr-100x5", "pgd-200x5"),
    "radii": ("fmn-300", "fab_t-100", "apgd_ce-50"),
}
"""Attacks in turn, the worst case a sample; ``standard`` is AutoAttack's (Croce & Hein).

``strong`` has the same kinds of attacks, shorter. ``radii`` brackets the radius of each
sample: :mod:`advnorm.evaluation.radii`.
"""
RADII = "radii"
"""The name of the condition that has no radius of its own."""
_L1_STANDARD = ("apgd_ce-100x5", "apgd_t-100", "fab_t-100", "square-5000")
_SUITES_IN: dict[str, dict[str, tuple[str, ...]]] = {
    "l1": {
        "standard": _L1_STANDARD,
        "full": (*_L1_STANDARD, "apgd_dlr-100x5", "fmn-1000", "pgd-200x5"),
        "radii": ("pdpgd-500", "fmn-300", "fab_t-100", "apgd_ce-50"),
    },
    "l2": {"radii": ("ddn-300", "fmn-300", "apgd_ce-50")},
    "l0": {
        "quick": ("fmn-100",),
        "strong": ("sigma_zero-100", "fmn-100"),
        "standard": ("sigma_zero-1000",),
        "full": ("sigma_zero-1000", "fmn-1000", "pgd-200x5"),
        "radii": ("sigma_zero-1000", "fmn-300"),
    },
}
"""The suites of a norm, where they differ: ``standard`` in L1 is AutoAttack's for L1."""
ALL_CORRUPTIONS = "corruptions"
"""The name of every corruption at every severity."""

_SIGMA = NamePart(
    r"(?:-(?P<sigma>(?=[0-9.]*[1-9])[0-9]*\.?[0-9]+))?",
    "[-SIGMA]",
    "SIGMA a standard deviation > 0",
)
_CORRUPTION = NamePart(
    r"-(?P<corruption>[a-z_]+)-(?P<severity>[1-5])",
    "-NAME-SEVERITY",
    "NAME of 'advnorm list corruptions' and SEVERITY from 1 to 5",
)
NATURAL = {
    "clean": NameForm("clean"),
    "noise": NameForm(
        "noise",
        (_SIGMA,),
        {
            "unclipped": NameOption("bounds", meaning="noise may leave the image bounds"),
            "tile": NameOption(
                "tile", "PIXELS", meaning="one value for each tile of so many pixels a side"
            ),
        },
    ),
    "corruption": NameForm("corruption", (_CORRUPTION,)),
}
"""Conditions without an adversary."""


@dataclass(frozen=True)
class NaturalName:
    """A change of the images that no adversary chooses, parsed."""

    text: str
    family: str
    sigma: float
    clipped: bool
    tile: int
    corruption: str
    severity: int


@dataclass(frozen=True)
class SuiteName:
    """A suite and its attacks, in their order."""

    text: str
    attacks: tuple[AttackName, ...]

    def attacks_in(self, norm: str) -> tuple[AttackName, ...]:
        """Return the attacks of a norm."""
        own = _SUITES_IN.get(norm, {}).get(self.text)
        return self.attacks if own is None else tuple(map(parse_attack, own))


@dataclass(frozen=True)
class CertificateName:
    """A certificate by its method."""

    text: str


ConditionName = NaturalName | SuiteName | CertificateName | AttackName


def parse_condition(text: str) -> ConditionName:
    """Read the name of one condition in full, or refuse it with a sentence.

    >>> parse_condition("corruption-fog-3").severity, parse_condition("pgd-50x5").restarts
    (3, 5)
    """
    if text in SUITES:
        return SuiteName(text, tuple(map(parse_attack, SUITES[text])))
    if text in METHODS:
        return CertificateName(text)
    family = family_of(text)
    if family in SUITES or family in METHODS:
        kind = "suite" if family in SUITES else "certificate"
        raise refusal(text, f"the {kind} {family} takes no number, and no option")
    if family in ATTACKS:
        return parse_attack(text)
    if family not in NATURAL:
        raise unknown("condition", family, [*NATURAL, *ATTACKS, *SUITES, *METHODS])
    numbers, options = NATURAL[family].read(text)
    return NaturalName(
        text,
        family,
        sigma=float(numbers.get("sigma", 0.25)),
        clipped="unclipped" not in options,
        tile=int(options.get("tile") or 1),
        corruption=numbers.get("corruption", ""),
        severity=int(numbers.get("severity", 0)),
    )


def parse_attacks(text: str, norm: str = "linf") -> tuple[AttackName, ...]:
    """Read the name of an attack or a suite as attacks; anything else is refused."""
    name = parse_condition(text)
    if isinstance(name, SuiteName):
        return name.attacks_in(norm)
    if not isinstance(name, AttackName):
        raise ValueError(f"{text!r} has no adversary: name an attack, such as 'pgd-40'")
    return (name,)


def expand_corruptions(names: Sequence[str], shape: Sequence[int] | None) -> list[str]:
    """Replace ``corruptions`` by all of them, without those that need colours if grey.

    >>> names = expand_corruptions(["clean", "corruptions"], (1, 28, 28))
    >>> len(names), names[:3], names[-1]
    (91, ['clean', 'corruption-brightness-1', 'corruption-brightness-2'], \
'corruption-zoom_blur-5')
    """
    grey = shape is not None and len(shape) == 3 and shape[0] != 3
    chosen = [name for name in CORRUPTIONS if not (grey and name in COLOUR_ONLY)]
    every = [f"corruption-{name}-{level}" for name in chosen for level in SEVERITIES]
    expanded = (every if name == ALL_CORRUPTIONS else [name] for name in names)
    return [text for texts in expanded for text in texts]
