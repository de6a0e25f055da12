"""The cost of runs: operations of training and of attacks, and hours on a device."""

from functools import cache

from advnorm.evaluation.condition_names import (
    ALL_CORRUPTIONS,
    CertificateName,
    NaturalName,
    parse_attacks,
    parse_condition,
)
from advnorm.recipe import Recipe
from advnorm.records import Record
from advnorm.runs.devices import DEVICES

DEVICE = "a100"
"""The device whose hours are listed."""
_CERTIFICATES = {"ibp": 2, "crown-ibp": 40, "crown": 400}
"""Passes of a certificate: intervals take two, ten margins backward more."""
_TEST = {"mnist": 10_000, "fashion_mnist": 10_000, "cifar10": 10_000, "cifar100": 10_000}
_TEST |= {"svhn": 26_032, "imagenet": 50_000, "tiny-imagenet": 10_000, "digits": 360}


class Cost(Record):
    """The cost of one seed."""

    runs: int
    operations: float
    """Additions and multiplications of products, training and attacks together."""

    @property
    def hours(self) -> float:
        """Hours on :data:`DEVICE`."""
        return DEVICES[DEVICE].hours(self.operations, half=False)

    def __str__(self) -> str:
        hours = f"{self.hours:.2g} h" if self.hours >= 1 / 60 else "under a minute"
        runs = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        return f"{runs}, {self.operations:.1e} operations, {hours} on one {DEVICE}"


def evaluation_passes(recipe: Recipe) -> float:
    """Return the forward passes of a recipe's evaluation, if no sample broke early."""
    spec, total = recipe.evaluation, evaluated_samples(recipe)
    radii = len(spec.threat.eps) or 2
    each = sum(_passes_of(n) * (radii if _has_radius(n) else 1) for n in spec.conditions)
    return each * min(total, spec.samples or total)


def evaluated_samples(recipe: Recipe) -> int:
    """Return how many test samples there are."""
    return recipe.data.test or _TEST.get(recipe.data.name, 1000)


@cache
def _passes_of(name: str) -> int:
    """Return the passes that a condition may take for one sample.

    >>> [_passes_of(name) for name in ("clean", "pgd-10x2", "apgd_t-100", "square-500")]
    [1, 60, 2700, 500]
    """
    if name == ALL_CORRUPTIONS:
        return 19 * 5
    condition = parse_condition(name)
    if isinstance(condition, NaturalName):
        return 1
    if isinstance(condition, CertificateName):
        return _CERTIFICATES[name]
    return sum(attack.passes for attack in parse_attacks(name))


def _has_radius(name: str) -> bool:
    """Tell whether a condition is tested at each radius."""
    return name != ALL_CORRUPTIONS and not isinstance(parse_condition(name), NaturalName)
