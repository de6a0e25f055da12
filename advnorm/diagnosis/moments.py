r"""How are the features distributed, up to the deepest map? (sridhar2021, Fig. 1c, d).

The channel-wise mean and variance over the whole batch, averaged over the channels. The
deepest feature map is the input of the last convolution that runs, or, in a network
without one, of its last linear layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, frozen_eval
from advnorm.diagnosis.features import feature_moments as by_place
from advnorm.diagnosis.registry import question
from advnorm.norms import Mode
from advnorm.norms.moments import Moments, measure_moments
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def channel_average(moments: Moments) -> tuple[Tensor, Tensor]:
    """Return mean and variance, averaged over the channels."""
    return moments.mean.mean(), moments.var.mean()


def last_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers whose inputs may be the deepest feature map: the last to run."""
    layers = list(model.modules())
    convolutions: list[nn.Module] = [x for x in layers if isinstance(x, _CONVOLUTIONS)]
    return convolutions or [layer for layer in layers if isinstance(layer, nn.Linear)]


@contextmanager
def record_deepest(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the inputs of the last layers; the deepest feature map is the last one."""
    inputs: list[Tensor] = []

    def record(_: nn.Module, args: tuple[Any, ...]) -> None:
        inputs[:] = [args[0].detach()]

    handles = [layer.register_forward_pre_hook(record) for layer in last_layers(model)]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()


@question("moments")
def moments(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    statistics: Mode = "batch",
    progress: Progress = QUIET,
) -> Diagnosis:
    """Mean and variance of the deepest feature map, and of the features at every norm."""
    with frozen_eval(model, statistics), torch.no_grad():
        with record_deepest(model) as inputs:
            averages = [channel_average(m) for m in by_place(model, images).values()]
        if not inputs:
            raise ValueError("the model has neither a convolution nor a linear layer")
        mean, variance = channel_average(measure_moments(inputs[0]))
    depth = tuple(range(1, len(averages) + 1))
    return Diagnosis(
        question="moments",
        source="sridhar2021 Fig. 1c, d",
        reading="Moments that differ much between layers, or between two batches, are a "
        "shift that the next layer has to follow.",
        numbers={"mean": float(mean), "variance": float(variance)},
        settings={"statistics": statistics, "n": len(images)},
        panels=(
            _panel(
                "Mean of the features by depth", "mean", depth, [m for m, _ in averages]
            ),
            _panel(
                "Variance of the features by depth",
                "variance",
                depth,
                [v for _, v in averages],
                log=True,
            ),
        ),
    )


def _panel(
    title: str, y: str, depth: tuple[int, ...], values: list[Tensor], *, log: bool = False
) -> Panel:
    series = Series(name=y, x=depth, y=tuple(map(float, values)))
    return Panel(
        kind="lines", title=title, x="place, from the input", y=y, log=log, series=(series,)
    )
