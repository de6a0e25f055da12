r"""Threat models: which perturbed inputs an adversary may choose.

A threat model is a set :math:`S(x)` around a clean input :math:`x`: a norm ball,
intersected with the box of valid images. Attacks use only the methods below, so no attack
mentions a norm.

``L1`` and ``L0`` are the sparse ones: few features change, by much.

>>> Linf(8 / 255)
Linf(eps=8/255)
>>> L2(128, bounds=(0, 255))
L2(eps=128.0, bounds=(0.0, 255.0))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite, prod, sqrt
from numbers import Real
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from advnorm.draws import Draws
from advnorm.sparse_balls import project_l0_box, project_l1_box, top_signs
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
        """The norm: ``"linf"``, ``"l2"``, ``"l1"`` or ``"l0"``."""
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

    def scaled(self, factor: float) -> Self:
        """Return the same threat with ``factor`` times the radius, where it can have it."""
        ...

    def diameter(self, shape: Sequence[int]) -> float:
        """Return the largest distance of two valid images of a shape."""
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

    def scaled(self, factor: float) -> Self:
        """Return the same threat with ``factor`` times the radius."""
        return self.with_eps(factor * self.eps)


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

    def diameter(self, shape: Sequence[int]) -> float:
        """Return the range of a pixel."""
        return self.bounds[1] - self.bounds[0]


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

    def diameter(self, shape: Sequence[int]) -> float:
        """Return the diagonal of the box."""
        return (self.bounds[1] - self.bounds[0]) * sqrt(prod(shape))


@dataclass(frozen=True, repr=False)
class L1(_Ball):
    r"""The absolute changes of all features together are at most ``eps``.

    .. math:: S(x) = \{x' \in [l, h]^d : \|x' - x\|_1 \le \epsilon\}

    ``eps`` is in the units of the images, summed over pixels and channels: 12 is the usual
    radius for images of 32x32 in [0, 1]. ``bounds`` are the smallest and the largest value
    of a valid pixel, (l, h).

    >>> L1(12)
    L1(eps=12.0)
    """

    name: ClassVar[str] = "l1"
    SHARE: ClassVar[float] = 0.05
    """Share of the features that a step changes: SLIDE has 0.01, for larger images."""

    def sample(self, clean: Tensor, draws: Draws) -> Tensor:
        r"""Draw uniformly from the ball, then clip.

        Signed exponential numbers over the sum of d + 1 exponential numbers are uniform
        in the ball.
        """
        flat = draws.uniform(prod(clean.shape[1:]), dtype=clean.dtype)
        signs = (flat - 0.5).sign()
        size = -(2 * (flat - 0.5).abs()).clamp_(min=torch.finfo(flat.dtype).tiny).log_()
        spare = -draws.stream("radius").uniform(1, dtype=clean.dtype).log_()
        total = size.sum(1, keepdim=True) + spare
        change = signs * size * (self.eps / total)
        return (clean + change.view_as(clean)).clamp_(*self.bounds)

    def project(self, x: Tensor, clean: Tensor) -> Tensor:
        """Return the nearest point of the ball inside the box, exactly."""
        return self.shrink(x, clean, clean.new_full((len(clean),), self.eps))

    def direction(self, grad: Tensor) -> Tensor:
        """Return the signs of the steepest features, of length 1.

        The steepest single step changes one feature; in the box, which one feature soon
        meets, a step on the largest entries of the gradient is better (Tramer & Boneh,
        2019, arXiv:1904.13000; Croce & Hein, 2021).
        """
        flat = grad.flatten(1)
        count = max(1, round(self.SHARE * flat.shape[1]))
        counts = torch.full((len(flat),), count, device=flat.device)
        return top_signs(flat, counts).view_as(grad)

    def contains(self, x: Tensor, clean: Tensor) -> Tensor:
        """Tell which ``x`` are admissible, up to rounding; shape ``(batch,)``."""
        unit = torch.finfo(x.dtype).eps
        slack = unit * (1 + _magnitude(clean)) * prod(clean.shape[1:])
        near: Tensor = self.distance(x, clean) <= self.eps * (1 + 16 * unit) + slack
        return near & _inside(x, self.bounds)

    def distance(self, x: Tensor, clean: Tensor) -> Tensor:
        """Return the sum of the absolute changes; shape ``(batch,)``."""
        return (x - clean).abs().flatten(1).sum(1)

    def shrink(self, x: Tensor, clean: Tensor, radius: Tensor) -> Tensor:
        """Project onto a ball of each sample's own radius, inside the box."""
        return _flat(project_l1_box, x, clean, radius[:, None], self.bounds)

    def diameter(self, shape: Sequence[int]) -> float:
        """Return the distance of two opposite corners of the box."""
        return (self.bounds[1] - self.bounds[0]) * prod(shape)


@dataclass(frozen=True, repr=False)
class L0(_Ball):
    r"""At most ``eps`` features may change, each by as much as it likes.

    .. math:: S(x) = \{x' \in [l, h]^d : |\{i : x'_i \ne x_i\}| \le \epsilon\}

    ``eps`` is a whole number. It counts features, which are the values of an image: a pixel
    with three channels has three. ``bounds`` are the smallest and the largest value of a
    valid pixel, (l, h).

    >>> L0(20)
    L0(eps=20)
    """

    name: ClassVar[str] = "l0"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps % 1:
            raise ValueError(
                f"eps {self.eps:g} of an L0 threat is a number of features that may change "
                "(a pixel of three channels has three): give a whole number, such as 20"
            )

    def __repr__(self) -> str:
        bounds = "" if self.bounds == (0.0, 1.0) else f", bounds={self.bounds}"
        return f"L0(eps={self.eps:.0f}{bounds})"

    def scaled(self, factor: float) -> Self:
        """Return the same threat with ``factor`` times the radius, rounded up."""
        return self.with_eps(ceil(factor * self.eps - 1e-9))

    def sample(self, clean: Tensor, draws: Draws) -> Tensor:
        """Draw the features that change, and their values in the box, uniformly."""
        low, high = self.bounds
        size = prod(clean.shape[1:])
        values = draws.uniform(size, dtype=clean.dtype).mul_(high - low).add_(low)
        order = draws.stream("features").uniform(size, dtype=torch.float64).argsort(1)
        rank = torch.arange(size, device=clean.device).expand_as(order)
        chosen = torch.zeros_like(order).scatter_(1, order, rank) < self.eps
        return torch.where(chosen, values, clean.flatten(1)).view_as(clean)

    def project(self, x: Tensor, clean: Tensor) -> Tensor:
        """Return the nearest valid point with so few changes."""
        return self.shrink(x, clean, clean.new_full((len(clean),), self.eps))

    def direction(self, grad: Tensor) -> Tensor:
        """Scale the gradient so that its largest entry is the range of a pixel.

        A step along all of it, which a projection cuts to the largest changes (PGD-L0,
        Croce & Hein, 2019, arXiv:1909.05040). The unit is one feature, changed in full.
        """
        largest = grad.abs().flatten(1).amax(1).view(-1, *(1,) * (grad.ndim - 1))
        unit = largest.clamp(min=torch.finfo(grad.dtype).tiny)
        return grad / unit * (self.bounds[1] - self.bounds[0])

    def contains(self, x: Tensor, clean: Tensor) -> Tensor:
        """Tell which ``x`` are admissible, exactly; shape ``(batch,)``."""
        return (self.distance(x, clean) <= self.eps) & _inside(x, self.bounds)

    def distance(self, x: Tensor, clean: Tensor) -> Tensor:
        """Return the number of features that differ; shape ``(batch,)``."""
        return (x != clean).flatten(1).sum(1).to(clean.dtype)

    def shrink(self, x: Tensor, clean: Tensor, radius: Tensor) -> Tensor:
        """Keep each sample's own number of changes, those that count most."""
        return _flat(project_l0_box, x, clean, radius.long(), self.bounds)

    def diameter(self, shape: Sequence[int]) -> float:
        """Return the number of features."""
        return float(prod(shape))


def _flat(
    project: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    x: Tensor,
    clean: Tensor,
    radius: Tensor,
    bounds: Bounds,
) -> Tensor:
    """Project changes as flat batches; a feature that does not change is the clean one."""
    flat = clean.flatten(1)
    low, high = (bounds[0] - flat).clamp_(max=0), (bounds[1] - flat).clamp_(min=0)
    change = project(x.flatten(1) - flat, radius, low, high)
    return (flat + change).clamp_(*bounds).view_as(clean)


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


THREATS: dict[str, type[Linf] | type[L2] | type[L1] | type[L0]] = {
    "linf": Linf,
    "l2": L2,
    "l1": L1,
    "l0": L0,
}


def _l2_norm(x: Tensor) -> Tensor:
    """Return each example's norm, shaped to broadcast against ``x``."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)
    return norm


def _magnitude(clean: Tensor) -> Tensor:
    return clean.abs().flatten(1).amax(1)


def _inside(x: Tensor, bounds: Bounds) -> Tensor:
    return ((x >= bounds[0]) & (x <= bounds[1])).flatten(1).all(1)
