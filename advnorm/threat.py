r"""Threat models: which perturbed inputs an adversary may choose.

A threat model is a set :math:`S(x)` around a clean input :math:`x`: a norm ball,
intersected with the box of valid images. Attacks use only the methods below, so no attack
mentions a norm.

>>> Linf(8 / 255)
Linf(eps=8/255)
>>> L2(128, bounds=(0, 255))
L2(eps=128.0, bounds=(0.0, 255.0))
"""

from dataclasses import dataclass, replace
from math import isfinite, prod
from numbers import Real
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from advnorm.draws import Draws
from advnorm.text import shorten

Bounds = tuple[float, float]


def check_threat(threat: object) -> None:
    """Refuse what is given in the place of a threat.

    >>> check_threat(0.03)
    Traceback (most recent call last):
    ValueError: threat is Linf(8/255) or L2(0.5), not 0.03: from advnorm import Linf, L2
    """
    if isinstance(threat, type) or not hasattr(threat, "bounds"):
        raise ValueError(
            f"threat is Linf(8/255) or L2(0.5), not {shorten(threat)}: "
            "from advnorm import Linf, L2"
        )


class Threat(Protocol):
    """A set of admissible inputs around each clean input of a batch."""

    @property
    def name(self) -> str:
        """The norm, ``"linf"`` or ``"l2"``."""
        ...

    @property
    def eps(self) -> float:
        """The radius of the ball."""
        ...

    @property
    def bounds(self) -> Bounds:
        """The smallest and the largest value of a valid image."""
        ...

    def sample(self, clean: Tensor, draws: Draws) -> Tensor:
        """Draw one admissible input per clean input."""
        ...

    def project(self, x: Tensor, clean: Tensor) -> Tensor:
        """Map each ``x`` to an admissible input, and to itself where it is one."""
        ...

    def direction(self, grad: Tensor) -> Tensor:
        """Return the unit step that increases the loss most, to first order."""
        ...

    def contains(self, x: Tensor, clean: Tensor) -> Tensor:
        """Tell which ``x`` are admissible, up to rounding; shape ``(batch,)``."""
        ...

    def distance(self, x: Tensor, clean: Tensor) -> Tensor:
        """Return the distance of each ``x`` from its clean input; shape ``(batch,)``."""
        ...

    def shrink(self, x: Tensor, clean: Tensor, radius: Tensor) -> Tensor:
        """Project as :meth:`project` does, with one radius per sample, ``(batch,)``."""
        ...

    def with_eps(self, eps: float) -> Self:
        """Return the same threat with another radius."""
        ...


@dataclass(frozen=True, repr=False)
class _Ball:
    """A radius and the box of valid images, checked and kept as plain floats."""

    eps: float
    bounds: Bounds = (0.0, 1.0)
    name: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", _radius(self.eps))
        object.__setattr__(self, "bounds", _box(self.bounds))

    def __repr__(self) -> str:
        levels = round(self.eps * 255)
        eps = f"{levels}/255" if 0 < levels < 255 and levels / 255 == self.eps else self.eps
        bounds = "" if self.bounds == (0.0, 1.0) else f", bounds={self.bounds}"
        return f"{type(self).__name__}(eps={eps}{bounds})"

    def with_eps(self, eps: float) -> Self:
        """Return the same threat with another radius."""
        return replace(self, eps=eps)


@dataclass(frozen=True, repr=False)
class Linf(_Ball):
    r"""Every pixel may change by at most ``eps``.

    .. math:: S(x) = \{x' \in [l, h]^d : \|x' - x\|_\infty \le \epsilon\}

    ``eps`` is in the units of the images. ``bounds`` are the smallest and the largest value
    of a valid pixel, (l, h).

    >>> Linf(8 / 255).eps
    0.03137254901960784
    >>> Linf(8, bounds=(0, 255))
    Linf(eps=8.0, bounds=(0.0, 255.0))
    """

    name: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.bounds
        if self.eps > high - low:
            raise ValueError(
                f"eps {self.eps:g} is larger than the whole range of pixels "
                f"[{low:g}, {high:g}]: write 8/255, not 8, or set the bounds of your images"
            )

    def sample(self, clean: Tensor, draws: Draws) -> Tensor:
        """Draw uniformly from the cube, then clip to the valid images."""
        unit = draws.uniform(*clean.shape[1:], dtype=clean.dtype)
        return (clean + unit.mul_(2).sub_(1).mul_(self.eps)).clamp_(*self.bounds)

    def project(self, x: Tensor, clean: Tensor) -> Tensor:
        """Clip to the box; both constraints are boxes, so this is exact."""
        return torch.clamp(x, clean - self.eps, clean + self.eps).clamp_(*self.bounds)

    def direction(self, grad: Tensor) -> Tensor:
        """Return the sign of the gradient."""
        return grad.sign()

    def contains(self, x: Tensor, clean: Tensor) -> Tensor:
        """Tell which ``x`` are admissible, up to rounding; shape ``(batch,)``."""
        slack = 4 * torch.finfo(x.dtype).eps * (1 + _magnitude(clean))
        return (self.distance(x, clean) <= self.eps + slack) & _inside(x, self.bounds)

    def distance(self, x: Tensor, clean: Tensor) -> Tensor:
        """Return the largest change of a pixel; shape ``(batch,)``."""
        return (x - clean).abs().flatten(1).amax(1)

    def shrink(self, x: Tensor, clean: Tensor, radius: Tensor) -> Tensor:
        """Clip to a cube of each sample's own radius, and to the valid images."""
        r = radius.view(-1, *(1,) * (x.ndim - 1))
        return torch.clamp(x, clean - r, clean + r).clamp_(*self.bounds)


@dataclass(frozen=True, repr=False)
class L2(_Ball):
    r"""The Euclidean length of the change is at most ``eps``.

    .. math:: S(x) = \{x' \in [l, h]^d : \|x' - x\|_2 \le \epsilon\}

    ``eps`` is in the units of the images. ``bounds`` are the smallest and the largest value
    of a valid pixel, (l, h).

    >>> L2(0.5)
    L2(eps=0.5)
    """

    name: ClassVar[str] = "l2"

    def sample(self, clean: Tensor, draws: Draws) -> Tensor:
        r"""Draw uniformly from the ball, then clip: radius :math:`\epsilon u^{1/d}`."""
        unit = self.direction(draws.normal(*clean.shape[1:], dtype=clean.dtype))
        u = draws.stream("radius").uniform(*(1,) * (clean.ndim - 1), dtype=clean.dtype)
        radius = self.eps * u ** (1 / prod(clean.shape[1:]))
        return self.project(clean + radius * unit, clean)

    def project(self, x: Tensor, clean: Tensor) -> Tensor:
        """Shrink onto the ball, then clip; clipping towards ``clean`` stays inside it."""
        delta = x - clean
        norm = _l2_norm(delta).clamp(min=torch.finfo(x.dtype).tiny)
        return (clean + (self.eps / norm).clamp(max=1) * delta).clamp_(*self.bounds)

    def direction(self, grad: Tensor) -> Tensor:
        """Scale the gradient to unit length, however small it is; zero stays zero."""
        tiny = torch.finfo(grad.dtype).tiny
        largest = grad.abs().flatten(1).amax(1).view(-1, *(1,) * (grad.ndim - 1))
        scaled = grad / largest.clamp(min=tiny)  # squares of the raw gradient may underflow
        return scaled / _l2_norm(scaled).clamp(min=tiny)

    def contains(self, x: Tensor, clean: Tensor) -> Tensor:
        """Tell which ``x`` are admissible, up to rounding; shape ``(batch,)``."""
        unit = torch.finfo(x.dtype).eps
        slack = unit * (1 + _magnitude(clean)) * prod(clean.shape[1:]) ** 0.5
        near: Tensor = self.distance(x, clean) <= self.eps * (1 + 8 * unit) + slack
        return near & _inside(x, self.bounds)

    def distance(self, x: Tensor, clean: Tensor) -> Tensor:
        """Return the Euclidean length of the change; shape ``(batch,)``."""
        return _l2_norm(x - clean).flatten()

    def shrink(self, x: Tensor, clean: Tensor, radius: Tensor) -> Tensor:
        """Shorten the change to each sample's own radius, then clip."""
        delta = x - clean
        norm = _l2_norm(delta).clamp(min=torch.finfo(x.dtype).tiny)
        r = radius.view(-1, *(1,) * (x.ndim - 1))
        return (clean + (r / norm).clamp(max=1) * delta).clamp_(*self.bounds)


def _radius(eps: object) -> float:
    """Return the radius as a float; refuse anything but one finite number from 0."""
    number = _number(eps)
    if number is None:
        raise ValueError(
            f"eps is a radius: give one number, such as 8/255, not {shorten(eps)}; for "
            "several radii, give a list of threats"
        )
    if not (isfinite(number) and number >= 0):
        raise ValueError(f"eps is a radius: it must be >= 0 and finite, not {number:g}")
    return number


def _box(bounds: object) -> Bounds:
    """Return the bounds as floats; refuse anything but two numbers, the smaller first."""
    pair = bounds if isinstance(bounds, tuple | list | Tensor | np.ndarray) else ()
    numbers = [_number(value) for value in pair]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        raise ValueError(
            f"bounds are two numbers, (low, high), not {shorten(bounds)}: for bounds of "
            "each channel, scale the channels inside the model"
        )
    low, high = numbers[0], numbers[1]
    if not low < high:
        raise ValueError(f"bounds are (low, high) with low < high, not ({low:g}, {high:g})")
    return low, high


def _number(value: object) -> float | None:
    """Return a number of Python, of NumPy or of a tensor with one entry, else None."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value)


THREATS: dict[str, type[Linf] | type[L2]] = {"linf": Linf, "l2": L2}


def _l2_norm(x: Tensor) -> Tensor:
    """Return each example's norm, shaped to broadcast against ``x``."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)
    return norm


def _magnitude(clean: Tensor) -> Tensor:
    return clean.abs().flatten(1).amax(1)


def _inside(x: Tensor, bounds: Bounds) -> Tensor:
    return ((x >= bounds[0]) & (x <= bounds[1])).flatten(1).all(1)
