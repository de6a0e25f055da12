"""The radii at which an audit looks: around the threat's own, up to the whole box."""

from math import prod, sqrt

from advnorm.evaluation.checks.context import Subject
from advnorm.threat import Threat


def whole(subject: Subject) -> Threat:
    """Return the threat that contains every image: the diameter of the box."""
    low, high = subject.threat.bounds
    pixels = prod(subject.images.shape[1:])
    return subject.threat.with_eps(
        (high - low) * (sqrt(pixels) if subject.threat.name == "l2" else 1.0)
    )


def growing(subject: Subject) -> list[Threat]:
    """Return threats of half the radius, itself, twice, four times, and the whole box."""
    most, eps = whole(subject), subject.threat.eps
    inside = [eps * factor for factor in (0.5, 1.0, 2.0, 4.0) if eps * factor < most.eps]
    return [*(subject.threat.with_eps(radius) for radius in inside), most]
