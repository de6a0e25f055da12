r"""Boxes around feature maps: centre and radius, and in training the clean map.

.. math::
    \underline z = m - r, \qquad \overline z = m + r

In training the clean rows are stacked on the centres, so that one convolution serves both
(``lead`` has twice the rows of ``radius``); in verification there are none.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
CERTIFIED_NORMS = ("linf", "l2")
"""The norms of balls in which certificates bound a model."""


class InputSet(Protocol):
    """A norm ball cut with the box of valid images: what a threat of this package has."""

    @property
    def name(self) -> str:
        """The norm, ``"linf"`` or ``"l2"``."""
        ...

    @property
    def eps(self) -> float:
        """The radius of the ball."""
        ...

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value of a valid image."""
        ...


@dataclass(frozen=True)
class Ball:
    r"""The set :math:`\{c + s \odot \delta : \|\delta\|_2 \le \epsilon\}`.

    It lives as long as values are only moved and scaled, to the first linear layer.
    """

    centre: Tensor
    scale: Tensor
    eps: float
    error: Tensor | None = None
    """How far rounding may take a value out of it."""

    def loosened(self, error: Tensor) -> "Ball":
        """Return the ball with one more error of its values."""
        error = error.expand_as(self.centre)
        return replace(self, error=error if self.error is None else self.error + error)

    def moved(self, function: Map) -> "Ball":
        """Return the ball whose values are moved by ``function``, no two onto one."""
        error = None if self.error is None else function(self.error)
        return Ball(function(self.centre), function(self.scale), self.eps, error)

    def stretched(self, factor: Tensor | float, shift: Tensor | float) -> "Ball":
        """Return the ball times ``factor`` plus ``shift``, value by value."""
        centre = self.centre * factor + shift
        error = None if self.error is None else (self.error * factor).abs()
        return Ball(centre, self.scale * factor, self.eps, error)

    def rows(self, rows: slice) -> "Ball":
        """Return the ball of some samples."""
        parts = (
            part if part is None or len(part) == 1 else part[rows]
            for part in (self.centre, self.scale, self.error)
        )
        centre, scale, error = parts
        assert centre is not None and scale is not None
        return Ball(centre, scale, self.eps, error)

    def room(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return how large :math:`|\delta|` may be in a box, on the way down and up."""
        size = self.scale.abs()
        still, size = size == 0, size.clamp(min=torch.finfo(size.dtype).tiny)
        down, up = (self.centre - lower).clamp(min=0), (upper - self.centre).clamp(min=0)
        return (down / size).masked_fill(still, 0), (up / size).masked_fill(still, 0)


@dataclass(frozen=True)
class Box:
    """All values between ``lower`` and ``upper``, and inside of ``ball`` if there is one.

    ``lead`` is ``(rows, ...)``, the centres; or ``(2 rows, ...)``, clean values first.
    """

    lead: Tensor
    radius: Tensor
    ball: Ball | None = None
    terms: Tensor | None = None
    """How large the terms are that each value is the sum of, where it is known."""

    @property
    def shape(self) -> torch.Size:
        """The shape of one bound."""
        return self.radius.shape

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The clean rows, if there are any, and the centres."""
        return torch.split(self.lead, max(len(self.radius), 1))

    @property
    def size(self) -> Tensor:
        """The size of the terms; where it is not known, that of the values themselves."""
        return self.magnitude if self.terms is None else self.terms

    @property
    def magnitude(self) -> Tensor:
        """The largest absolute value."""
        return self.centre.abs() + self.radius

    @property
    def copies(self) -> int:
        """How many times the rows of ``lead`` are those of ``radius``: 1 or 2."""
        return max(1, len(self.lead) // max(len(self.radius), 1))

    @property
    def clean(self) -> Tensor | None:
        """The clean map; ``None`` in verification."""
        return self.parts[0] if self.copies == 2 else None

    @property
    def centre(self) -> Tensor:
        """The middle of the bounds."""
        return self.parts[-1]

    def rows(self, rows: slice) -> "Box":
        """Return the box of some samples."""
        return Box(
            torch.cat([part[rows] for part in self.parts]),
            self.radius[rows],
            self.ball and self.ball.rows(rows),
            None if self.terms is None else self.terms[rows],
        )

    @property
    def lower(self) -> Tensor:
        """The lower bound."""
        return self.centre - self.radius

    @property
    def upper(self) -> Tensor:
        """The upper bound."""
        return self.centre + self.radius


def between(clean: Tensor | None, lower: Tensor, upper: Tensor) -> Box:
    """Return the box between two bounds, with the clean map if there is one."""
    centre = (lower + upper).div_(2)
    lead = centre if clean is None else torch.cat([clean, centre])
    return Box(lead, (upper - lower).div_(2))


def scaled(box: Box, factor: Tensor | float, shift: Tensor | float) -> Box:
    """Return ``factor * box + shift``; both broadcast against one sample."""
    size = factor.abs() if isinstance(factor, Tensor) else abs(factor)
    is_moved = isinstance(size, int) and size == factor == 1  # a shift alone
    lead = (box.lead if is_moved else box.lead * factor) + shift
    radius = box.radius if is_moved else box.radius * size
    if lead.shape[1:] != box.shape[1:]:  # values that are repeated are not free: no ball
        return Box(lead, radius.expand(len(radius), *lead.shape[1:]))
    return Box(lead, radius, box.ball and box.ball.stretched(factor, shift))


def refuse_uncertified(threat: InputSet) -> None:
    """Refuse a norm that no certificate bounds."""
    if threat.name not in CERTIFIED_NORMS:
        raise ValueError(
            f"certificates bound a model in linf and l2 balls, not in {threat.name}: use "
            "one of these norms, or attacks alone"
        )


def input_box(clean: Tensor, threat: InputSet, *, with_clean: bool = False) -> Box:
    """Return the set of admissible inputs around ``clean``; its box may hold it, too."""
    refuse_uncertified(threat)
    low, high = threat.bounds
    clean = clean if clean.is_floating_point() else clean.to(torch.get_default_dtype())
    middle = clean.clamp(low, high)  # rounding may have taken an image beyond them
    lower = (middle - threat.eps).clamp_(min=low)
    upper = (middle + threat.eps).clamp_(max=high)
    box = between(clean if with_clean else None, lower, upper)
    if threat.name == "linf":
        return box
    return replace(box, ball=Ball(middle, torch.ones_like(middle[:1]), threat.eps))
