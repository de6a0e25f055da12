r"""How far is a gradient to be trusted? The loss along it (Santurkar et al., 2018).

sridhar2021 cites them for what batch norm does to the loss: at weights w with gradient
:math:`g = \nabla L(w)`, steps :math:`w_\eta = w - \eta g` are taken, and

.. math::
    L(w_\eta), \qquad \|\nabla L(w_\eta) - g\|_2, \qquad
    \beta = \max_\eta \frac{\|\nabla L(w_\eta) - g\|_2}{\eta \|g\|_2}

are the loss's change, the gradient's change (its predictiveness) and the effective
smoothness along the way (https://arxiv.org/abs/1805.11604, section 3.2).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.diagnosis.losses import LossFn, differentiable, make_loss
from advnorm.diagnosis.option_ranges import Count, Positive
from advnorm.diagnosis.registry import question
from advnorm.norms import Mode
from advnorm.progress import Progress, Quiet
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


class LossAlongGradient(NamedTuple):
    """What was met along the gradient."""

    loss: float
    """At the weights as they are."""
    norm: float
    """Of the gradient there."""
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    changes: tuple[float, ...]
    """How far each gradient is from the first."""

    @property
    def smoothness(self) -> float:
        """The largest change of the gradient for the length of the way."""
        met = zip(self.rates, self.changes, strict=True)
        return max(c / (rate * self.norm) if self.norm else 0.0 for rate, c in met)


def follow_gradient(
    loss: LossFn,
    parameters: Sequence[Tensor],
    rates: Sequence[float],
    *,
    progress: Progress | None = None,
) -> LossAlongGradient:
    """Step against the gradient by each rate in turn; the parameters are put back."""
    progress = progress or Quiet()
    start, first = _gradient(loss, parameters)
    losses, changes = [], []
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        for count, rate in enumerate(rates, 1):
            _place(parameters, before, first, rate)
            here, grads = _gradient(loss, parameters)
            losses.append(float(here))
            changes.append(float(_norm([a - b for a, b in zip(grads, first, strict=True)])))
            progress.update(count, len(rates), f"rate {rate:.3g}, loss {losses[-1]:.4g}")
    finally:
        _place(parameters, before, before, 0.0)
    return LossAlongGradient(
        float(start), float(_norm(first)), tuple(rates), tuple(losses), tuple(changes)
    )


@question("smoothness")
def smoothness(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    loss: str = "plain",
    statistics: Mode = "batch",
    largest: Positive = 0.5,
    points: Count = 9,
    progress: Progress | None = None,
) -> Diagnosis:
    """Change of the loss and of its gradient along the gradient (Santurkar et al.).

    The rates of the steps are ``largest``, its half, its quarter, ...: ``points`` of them.
    """
    rates = [largest * 2.0**-k for k in reversed(range(points))]
    with differentiable(model, statistics) as parameters:
        surface = make_loss(
            model, images, labels, loss=loss, threat=threat, progress=progress
        )
        found = follow_gradient(surface, parameters, rates, progress=progress)
    return Diagnosis(
        question="smoothness",
        source="sridhar2021 A.6, after Santurkar et al.",
        reading="The less the loss and the gradient change along the gradient, the longer "
        "the steps that training can take.",
        numbers={
            "loss": found.loss,
            "gradient norm": found.norm,
            "smallest loss": min(found.losses),
            "largest loss": max(found.losses),
            "largest change of the gradient": max(found.changes),
            "effective smoothness": found.smoothness,
        },
        settings={"loss": loss, "statistics": statistics, "n": len(images)},
        panels=(
            _panel("Loss along the gradient", "loss", found.rates, found.losses),
            _panel("Change of the gradient", "distance (L2)", found.rates, found.changes),
        ),
    )


def _gradient(
    loss: LossFn, parameters: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    value = loss()
    grads = torch.autograd.grad(value, parameters, materialize_grads=True)
    return value.detach(), grads


@torch.no_grad()
def _place(
    parameters: Sequence[Tensor],
    before: Sequence[Tensor],
    first: Sequence[Tensor],
    rate: float,
) -> None:
    """Set the parameters to ``before - rate x first``; exactly ``before`` at rate 0."""
    for parameter, old, grad in zip(parameters, before, first, strict=True):
        parameter.copy_(old - rate * grad if rate else old)


def _norm(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.double().square().sum() for part in parts]).sum().sqrt()


def _panel(title: str, y: str, x: tuple[float, ...], found: tuple[float, ...]) -> Panel:
    return Panel(
        kind="lines",
        title=title,
        x="rate of the step",
        y=y,
        series=(Series(name=y, x=x, y=found),),
    )
