r"""The slope of a model's margin: by autograd, and by finite differences of its logits.

With the margin :math:`m(x) = z_a(x) - z_b(x)` of the two largest logits and a direction
:math:`v`, autograd gives :math:`\nabla m(x) \cdot v`, and finite differences give

.. math::
    \frac{m(x + h v) - m(x)}{h}.

Both agree for a small :math:`h` unless the backward pass is not that of the forward pass.
Answers are taken in double precision where a copy of the model gives the same ones there;
the gradient is the one that an attack gets, in the model's own precision.
"""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.attacks import LogitsFn
from advnorm.draws import Draws
from advnorm.evaluation.checks.significance import rounding_of
from advnorm.evaluation.engine import logits_of
from advnorm.model_state import frozen_parameters
from advnorm.threat import Threat

SCALES = (0.1, 0.3)
"""Of eps: the larger distances at which slopes are measured."""
DIRECTIONS = 4
"""Random directions at each image: one alone may be flat by chance."""
_INSIDE = 0.02
"""The share of noise in the images, so that none lies on a bound, and no two pixels are
equal: clipping and pooling have no slope there."""


class Slopes(NamedTuple):
    """Slopes of the margin: a row per sample, a column per direction."""

    own: Tensor
    """Along the gradient, as the answers have it; one column."""
    own_by_gradient: Tensor
    random: Tensor
    """Along random directions, as the answers have it."""
    random_by_gradient: Tensor
    larger: tuple[Tensor, ...]
    """Along the same directions, at each of :data:`SCALES`."""
    floor: Tensor
    """What rounding may make of a slope of 0, a number per sample."""
    double: bool
    """Whether the answers are in double precision."""


def measure(
    model: nn.Module, images: Tensor, threat: Threat, draws: Draws
) -> Slopes | None:
    """Return the slopes at points near ``images``; ``None`` if no gradient reaches them."""
    logits_fn = logits_of(model)
    x = _inside(images, threat, draws.stream("inside"))
    pair, gradient = _gradient(model, logits_fn, x)
    if gradient is None:
        return None
    with torch.no_grad():
        signs, extent = (
            _signs(x, draws.stream("signs")),
            threat.bounds[1] - threat.bounds[0],
        )
        eps = threat.eps / threat.distance(signs[:, 0], torch.zeros_like(signs[:, 0]))
        own = _like_signs(gradient.double())[:, None]
        wide = _in_double(model, x, logits_fn(x))
        answers = _Answers(wide or logits_fn, x, pair, wide is not None, extent)
        random, floor = answers.slopes(signs), answers.floor(signs)
        if answers.double and _is_hidden(random, floor):  # single precision inside
            answers = _Answers(logits_fn, x, pair, False, extent)
            random, floor = answers.slopes(signs), answers.floor(signs)
        return Slopes(
            answers.slopes(own),
            _along(gradient, own),
            random,
            _along(gradient, signs),
            tuple(answers.slopes(signs, scale * eps) for scale in SCALES),
            floor,
            answers.double,
        )


def _is_hidden(slopes: Tensor, floor: Tensor) -> bool:
    """Tell whether rounding hides most of the slopes."""
    return bool((floor > 0.1 * slopes.square().mean(1).sqrt()).double().mean() > 0.5)


class _Answers:
    """The margins of a model at and around some points."""

    def __init__(
        self, logits_fn: LogitsFn, x: Tensor, pair: Tensor, double: bool, extent: float
    ) -> None:
        self.logits_fn, self.pair, self.double = logits_fn, pair, double
        self.dtype = torch.float64 if double else x.dtype
        self.step = (1e-6 if double else 1e-3) * extent
        self.x = x.double()
        self.here = self._margins(self.x[:, None])

    def floor(self, signs: Tensor) -> Tensor:
        """Return the rounding error of a slope, measured at a thousandth of a step."""
        near = self._margins(self.x[:, None] + 1e-3 * self.step * signs)
        unit = 64 * torch.finfo(self.dtype).eps * self.here[:, 0].abs()
        return ((near - self.here).abs().amax(1) * 4 + unit) / self.step

    def slopes(self, directions: Tensor, step: Tensor | None = None) -> Tensor:
        """Return slopes along directions, which are of shape ``(samples, count, ...)``."""
        each = torch.full_like(self.here[:, 0], self.step) if step is None else step
        move = each.view(-1, *(1,) * self.x.ndim) * directions
        return (self._margins(self.x[:, None] + move) - self.here) / each[:, None]

    def _margins(self, points: Tensor) -> Tensor:
        count = points.shape[1]
        logits = self.logits_fn(points.flatten(0, 1).to(self.dtype)).double()
        pair = self.pair.repeat_interleave(count, 0)
        return _difference(logits, pair).view(-1, count)


def _signs(x: Tensor, draws: Draws) -> Tensor:
    """Return random directions of signs, shape ``(samples, DIRECTIONS, ...)``."""
    bits = draws.bits(DIRECTIONS, *x.shape[1:])
    return torch.where(bits > 0, 1.0, -1.0).to(x.device, torch.float64)


def _along(gradient: Tensor, directions: Tensor) -> Tensor:
    return (gradient.double()[:, None] * directions).flatten(2).sum(2)


def _inside(images: Tensor, threat: Threat, draws: Draws) -> Tensor:
    """Mix a little noise into the images."""
    low, high = threat.bounds
    noise = draws.uniform(*images.shape[1:], dtype=images.dtype)
    return images + _INSIDE * (low + (high - low) * noise - images)


def _gradient(
    model: nn.Module, logits_fn: LogitsFn, x: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return the two largest classes of each image, and the gradient of their margin."""
    x = x.clone().requires_grad_()
    with torch.enable_grad(), frozen_parameters(model):
        logits = logits_fn(x)
        pair = logits.topk(2, dim=1).indices
        margin = _difference(logits, pair).sum()
    if not margin.requires_grad:
        return pair, None
    (gradient,) = torch.autograd.grad(margin, x, allow_unused=True)
    return pair, gradient


def _in_double(model: nn.Module, x: Tensor, logits: Tensor) -> LogitsFn | None:
    """Return a copy of the model in double precision, if it answers as the model does."""
    try:
        copy = logits_of(deepcopy(model).double())
        wide = copy(x.double())
    except Exception:  # a model that cannot be copied or cast: whatever it raises
        return None
    spread = (logits.amax(1) - logits.amin(1))[:, None].double()
    if wide.dtype != torch.float64 or wide.shape != logits.shape:
        return None
    near = rounding_of(model) * spread
    return copy if bool(((wide - logits).abs() <= near).all()) else None


def _difference(logits: Tensor, pair: Tensor) -> Tensor:
    top, other = logits.gather(1, pair).unbind(1)
    return top - other


def _like_signs(gradient: Tensor) -> Tensor:
    """Scale each gradient to the L2 norm that an image of signs has; 0 stays 0."""
    flat = gradient.flatten(1)
    largest = flat.abs().amax(1, keepdim=True)
    flat = flat / torch.where(largest > 0, largest, 1.0)
    norm = flat.norm(dim=1, keepdim=True) / flat.shape[1] ** 0.5
    return (flat / torch.where(norm > 0, norm, 1.0)).view_as(gradient)
