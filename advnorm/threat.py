r"""Threat models: which perturbed inputs an adversary may choose.

A threat model is a set :math:`S(x)` around a clean input :math:`x`: a norm ball cut with
the box of valid images. Every attack is written against its maps, so no attack mentions a
norm.
"""

from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from advnorm.draws import Draws

Bounds = tuple[float, float]


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
        """Return how far each ``x`` is from its clean input; shape ``(batch,)``."""
        ...

    def shrink(self, x: Tensor, clean: Tensor, radius: Tensor) -> Tensor:
        """Project as :meth:`project` does, to a radius of each sample, ``(batch,)``."""
        ...

    def with_eps(self, eps: float) -> Self:
        """Return the same threat with another radius."""
        ...


@dataclass(frozen=True)
class _Ball:
    """What both norms share: a radius, the box of valid images, and their checks."""

    eps: float
    bounds: Bounds = (0.0, 1.0)
    name: ClassVar[str]

    def __post_init__(self) -> None:
        _refuse_other_bounds(self.bounds)
        if isinstance(self.eps, bool):
            raise ValueError("eps is a radius, such as 8/255, not True or False")
        if not (isfinite(self.eps) and self.eps >= 0):
            raise ValueError(
                f"eps is the radius of a ball and must be >= 0 and finite, not {self.eps:g}"
            )

    def with_eps(self, eps: float) -> Self:
        """Return the same threat with another radius."""
        return replace(self, eps=eps)


@dataclass(frozen=True)
class Linf(_Ball):
    r""":math:`\{x' \in [l, h]^d : \|x' - x\|_\infty \le \epsilon\}`."""

    name: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.bounds
        if self.eps > high - low:
            raise ValueError(
                f"eps {self.eps:g} is larger than the whole range of pixels "
                f"[{low:g}, {high:g}]: write 8/255, not 8"
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


@dataclass(frozen=True)
class L2(_Ball):
    r""":math:`\{x' \in [l, h]^d : \|x' - x\|_2 \le \epsilon\}`."""

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


def _refuse_other_bounds(bounds: Bounds) -> None:
    """Refuse bounds that are not two numbers, the smaller one first."""
    try:
        low, high = bounds
        low, high = low + 0.0, high + 0.0  # text has no sum
        ordered = bool(low < high)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"bounds are two numbers, (low, high), not {bounds!r}: for bounds of each "
            "channel, scale the channels inside the model"
        ) from None
    if not ordered:
        raise ValueError(f"bounds are (low, high) with low < high, not {bounds}")


THREATS: dict[str, type[Linf] | type[L2]] = {"linf": Linf, "l2": L2}


def _l2_norm(x: Tensor) -> Tensor:
    """Return each example's norm, shaped to broadcast against ``x``."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=tuple(range(1, x.ndim)), keepdim=True)
    return norm


def _magnitude(clean: Tensor) -> Tensor:
    return clean.abs().flatten(1).amax(1)


def _inside(x: Tensor, bounds: Bounds) -> Tensor:
    return ((x >= bounds[0]) & (x <= bounds[1])).flatten(1).all(1)
