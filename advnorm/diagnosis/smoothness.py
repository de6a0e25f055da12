r"""How smooth is the loss along its gradient? (Santurkar et al., 2018).

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

from advnorm.diagnosis.common import QUIET
from advnorm.diagnosis.losses import LossFn, loss_surface
from advnorm.diagnosis.registry import Count, Positive, question
from advnorm.norms import Mode
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


class LossAlongGradient(NamedTuple):
    """Losses and gradients at steps of several sizes along the gradient."""

    loss: float
    """At the initial weights."""
    norm: float
    """Of the gradient at the initial weights."""
    lrs: tuple[float, ...]
    """Learning rates of the steps."""
    losses: tuple[float, ...]
    changes: tuple[float, ...]
    """Distance of each gradient from the initial one."""

    @property
    def smoothness(self) -> float:
        """The largest change of the gradient, relative to the length of the step."""
        pairs = zip(self.lrs, self.changes, strict=True)
        return max(c / (lr * self.norm) if self.norm else 0.0 for lr, c in pairs)


def follow_gradient(
    loss: LossFn,
    parameters: Sequence[Tensor],
    lrs: Sequence[float],
    *,
    progress: Progress = QUIET,
) -> LossAlongGradient:
    """Step against the gradient with each learning rate; the parameters are restored."""
    start, first = _gradient(loss, parameters)
    losses, changes = [], []
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        for count, lr in enumerate(lrs, 1):
            _place(parameters, before, first, lr)
            here, grads = _gradient(loss, parameters)
            losses.append(float(here))
            changes.append(float(_norm([a - b for a, b in zip(grads, first, strict=True)])))
            progress.update(count, len(lrs), f"lr {lr:.3g}, loss {losses[-1]:.4g}")
    finally:
        _place(parameters, before, before, 0.0)
    return LossAlongGradient(
        float(start), float(_norm(first)), tuple(lrs), tuple(losses), tuple(changes)
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
    progress: Progress = QUIET,
) -> Diagnosis:
    """Change of the loss and of its gradient along the gradient (Santurkar et al.).

    The steps have learning rates ``largest``, ``largest / 2``, ``largest / 4``, ...,
    ``points`` of them.
    """
    lrs = [largest * 2.0**-k for k in reversed(range(points))]
    with loss_surface(
        model, images, labels, threat, loss=loss, statistics=statistics, progress=progress
    ) as surface:
        curve = follow_gradient(*surface, lrs, progress=progress)
    return Diagnosis(
        question="smoothness",
        source="sridhar2021 A.6, after Santurkar et al.",
        reading="The less the loss and the gradient change along the gradient, the longer "
        "the steps that training can take.",
        numbers={
            "loss": curve.loss,
            "gradient norm": curve.norm,
            "smallest loss": min(curve.losses),
            "largest loss": max(curve.losses),
            "largest change of the gradient": max(curve.changes),
            "effective smoothness": curve.smoothness,
        },
        settings={"loss": loss, "statistics": statistics, "n": len(images)},
        panels=(
            _panel("Loss along the gradient", "loss", curve.lrs, curve.losses),
            _panel("Change of the gradient", "distance (L2)", curve.lrs, curve.changes),
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
    lr: float,
) -> None:
    """Set the parameters to ``before - lr * first``; exactly ``before`` for lr 0."""
    for parameter, old, grad in zip(parameters, before, first, strict=True):
        parameter.copy_(old - lr * grad if lr else old)


def _norm(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.double().square().sum() for part in parts]).sum().sqrt()


def _panel(title: str, y: str, x: tuple[float, ...], values: tuple[float, ...]) -> Panel:
    return Panel(
        kind="lines",
        title=title,
        x="learning rate of the step",
        y=y,
        series=(Series(name=y, x=x, y=values),),
    )
