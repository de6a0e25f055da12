r"""Fooling images: what a model takes for a class when no ball limits the search.

galloway2019, appendix J, after Nguyen et al. (2015, https://arxiv.org/abs/1412.1897):
starting from white noise (Figures 12 and 14) or from an image of another class (Figure 15),
descend the cross-entropy of a target class by steps of fixed L2 length,

.. math::
    x^n = \mathrm{clip}_{[l, h]}\Bigl(x^{n-1} - \alpha \,
    \frac{\nabla \ell(f(x^{n-1}), t)}{\|\nabla \ell(f(x^{n-1}), t)\|_2}\Bigr),

until the target leads every other class by a margin of the softmax.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.attacks.pgd import fgsm
from advnorm.attacks.targets import Gain, LogitsFn
from advnorm.draws import Draws, draws_of_call
from advnorm.threat import L2, Bounds


class FoolingImages(NamedTuple):
    """Images made to look like a target class."""

    images: Tensor
    confidences: Tensor
    """Softmax of the target minus the best other, shape ``(batch,)``."""
    steps: Tensor
    """How many steps each image took, shape ``(batch,)``."""


def fooling(  # noqa: PLR0913 (what every attack takes, and where to stop)
    logits_fn: LogitsFn,
    targets: Tensor,
    *,
    shape: tuple[int, ...],
    bounds: Bounds = (0.0, 1.0),
    steps: int = 100,
    step_size: float = 0.2,
    confidence: float = 0.9,
    noise: float = 0.1,
    draws: Draws | None = None,
    generator: torch.Generator | None = None,
) -> FoolingImages:
    """Turn white noise into images of the target classes, as the model sees them.

    Args:
        logits_fn: Maps images in ``bounds`` to logits.
        targets: Class indices, shape ``(batch,)``.
        shape: The shape of one image.
        bounds: The smallest and the largest value of a valid image.
        steps: The most steps that an image may take.
        step_size: L2 length of a step.
        confidence: Softmax margin at which an image is finished; above 1, none ever is.
        noise: Standard deviation of the start, which has mean 0 before it is clipped.
        draws: The images' random numbers; by default fresh ones at every call.
        generator: Where fresh ones come from; by default torch's global generator, which
            advances as in ``torch.rand``.

    Raises:
        NonFiniteGradientError: If a gradient held NaN or infinity.
    """
    draws = draws_of_call(draws, generator, targets)
    white = draws.stream("fooling").normal(*shape, dtype=torch.get_default_dtype())
    return transform(
        logits_fn,
        (noise * white).clamp_(*bounds),
        targets,
        bounds=bounds,
        steps=steps,
        step_size=step_size,
        confidence=confidence,
    )


def transform(
    logits_fn: LogitsFn,
    source: Tensor,
    targets: Tensor,
    *,
    bounds: Bounds = (0.0, 1.0),
    steps: int = 100,
    step_size: float = 0.2,
    confidence: float = 0.9,
) -> FoolingImages:
    """Change images until the model takes them for the target classes (Figure 15).

    The settings are those of :func:`fooling`. A finished image no longer changes and costs
    no more passes; a mean margin of 90% is reached if every image reaches it.
    """
    ball = L2(step_size, bounds)
    images = source.detach().clone()
    counts, rows = torch.zeros_like(targets), torch.arange(len(targets)).to(targets.device)
    confidences = images.new_zeros(len(targets))
    for _ in range(steps):
        if not len(rows):
            break
        towards = _Towards(targets[rows])
        moved = fgsm(
            logits_fn,
            images[rows],
            targets[rows],
            ball,
            goal=towards,
            draws=Draws.of(0, rows),  # not read, and so the caller's generator stays
        )
        confidences[rows] = towards.margin.to(confidences)  # a model may be in double
        far = (towards.margin < confidence).nonzero().squeeze(1)
        rows = rows[far]
        images[rows] = moved[far]
        counts[rows] += 1
    if len(rows):
        with torch.no_grad():
            margin = _margin(logits_fn(images[rows]), targets[rows])
            confidences[rows] = margin.to(confidences)
    return FoolingImages(images, confidences, counts)


class _Towards:
    """A goal that descends the loss of the targets, and keeps the margins that it saw.

    The margin is that of the images before the step, at no extra pass.
    """

    margin: Tensor

    def __init__(self, targets: Tensor) -> None:
        self.targets = targets

    def __call__(
        self, logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws
    ) -> Gain:
        return self._gain

    def _gain(self, logits: Tensor) -> Tensor:
        self.margin = _margin(logits.detach(), self.targets)
        return -F.cross_entropy(logits, self.targets, reduction="none")


def _margin(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the softmax of the target minus the best other: > 0 where it is predicted."""
    softmax = logits.softmax(1)
    own = softmax.gather(1, targets[:, None]).squeeze(1)
    return own - softmax.scatter(1, targets[:, None], -torch.inf).amax(1)
