r"""Is the gradient masked? The loss around an image in two directions.

Athalye et al. (2018, https://arxiv.org/abs/1802.00420) give a sign of gradient masking: a
random step raises the loss as much as a step along the gradient. The loss is drawn at

.. math::
    x + a \epsilon \, d(\nabla_x \ell(f(x), y)) + b \epsilon \, r

where d is the threat's steepest direction (the sign, or the unit gradient) and r a random
direction of the same kind. Nothing is clipped to the valid images.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.diagnosis.common import (
    BATCH,
    QUIET,
    frozen_eval,
    predict_logits,
    to_floats,
)
from advnorm.diagnosis.pictures import picture
from advnorm.diagnosis.registry import Positive, question
from advnorm.draws import Draws
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


class LossDirections(NamedTuple):
    """Two steps of length eps for each image, shaped like the images."""

    gradient: Tensor
    random: Tensor


def loss_directions(
    model: nn.Module, images: Tensor, labels: Tensor, threat: Threat, *, seed: int = 0
) -> LossDirections:
    """Return the steepest step and a random one of the same kind, in the model's mode."""
    steps = []
    for x, y in zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            loss = F.cross_entropy(model(x), y, reduction="sum")
            (grad,) = torch.autograd.grad(loss, x)
        steps.append(threat.direction(grad))
    draws = Draws.of(seed, torch.arange(len(images), device=images.device))
    noise = draws.stream("surface").normal(*images.shape[1:], dtype=images.dtype)
    return LossDirections(
        threat.eps * torch.cat(steps), threat.eps * threat.direction(noise)
    )


@question("surface")
def surface(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    sample: int = 0,
    points: int = 21,
    span: Positive = 1.0,
    seed: int = 0,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Loss around a sample, along the gradient and a random direction (Athalye et al.).

    The grid has ``points`` x ``points`` points, an odd number, from ``-span`` to ``span``
    times eps. How often a random step raises the loss more than a gradient step is
    measured on all images.
    """
    if not 0 <= sample < len(images) or points < 3 or points % 2 == 0:
        raise ValueError(
            "surface needs an odd number of points, at least 3, and a sample from 0 to "
            f"{len(images) - 1}, not {points} and {sample}"
        )
    with frozen_eval(model):
        steps = loss_directions(model, images, labels, threat, seed=seed)
        clean, steepest, random = (
            _losses(model, images + step, labels) for step in (0.0, *steps)
        )
        axis = torch.linspace(-span, span, points, dtype=torch.float64)
        row = slice(sample, sample + 1)
        local = LossDirections(steps.gradient[row], steps.random[row])
        around = _around(model, images[row], labels[row], local, axis, progress)
    rows, middle = around.tolist(), points // 2
    return Diagnosis(
        question="surface",
        source="Athalye et al. (2018)",
        reading="Where a random step raises the loss more than a step along the gradient, "
        "or the loss is flat and then jumps, the gradient is masked. In the map the "
        "gradient's direction runs to the right, the random one up, from "
        f"{-span:g} to {span:g} eps.",
        numbers={
            "loss": float(clean.mean()),
            "loss after a gradient step": float(steepest.mean()),
            "loss after a random step": float(random.mean()),
            "random beats gradient": float((random > steepest).double().mean()),
        },
        settings={"n": len(images), "sample": sample, "eps": threat.eps, "span": span},
        panels=(
            Panel(
                kind="lines",
                title=f"Loss around sample {sample}",
                x="step, in eps",
                y="loss",
                series=(
                    Series(name="gradient", x=to_floats(axis), y=tuple(rows[middle])),
                    Series(
                        name="random", x=to_floats(axis), y=to_floats(around[:, middle])
                    ),
                ),
            ),
            Panel(
                kind="pictures",
                title="Loss in the plane of both directions",
                pictures=(
                    picture(
                        f"{around.min():.3g} (black) to {around.max():.3g} (white)",
                        around.flip(0),
                        stretched=True,
                    ),
                ),
            ),
        ),
    )


def _losses(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(predict_logits(model, images), labels, reduction="none")


def _around(
    model: nn.Module,
    image: Tensor,
    label: Tensor,
    steps: LossDirections,
    axis: Tensor,
    progress: Progress,
) -> Tensor:
    """Return the losses of the grid; a row is one step in the random direction."""
    scale = axis.to(image).view(-1, *(1,) * (image.ndim - 1))
    labels = label.expand(len(axis))
    rows = []
    for count, b in enumerate(axis.tolist(), 1):
        x = image + scale * steps.gradient + b * steps.random
        rows.append(_losses(model, x, labels))
        progress.update(count, len(axis), "rows of the grid")
    return torch.stack(rows).double().cpu()
