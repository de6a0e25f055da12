"""Does a model answer for an image alone, and as its graph does? Else no certificate."""

import torch
from torch import Tensor, nn

from advnorm.bounds.box import InputSet
from advnorm.bounds.graph import Graph
from advnorm.bounds.interval import evaluate_graph

_NOISE = 0.1
"""Its share in the image that is asked about."""


def check_independence(
    model: nn.Module, graph: Graph, clean: Tensor, labels: Tensor, threat: InputSet
) -> None:
    """Refuse a model whose answer depends on other images or on chance, or is not traced.

    An image with a little noise and one of noise alone are asked about in the company of a
    dark one, and of two light ones: rules look at one function at a time, and some mix
    samples without a trace of it. Then the graph answers for both: a branch on types,
    autocast inside of ``forward`` and hooks on all modules leave no trace either. What
    rounding may cost is allowed; the noise is there because norms turn a map that is
    constant into rounding errors.
    """
    dtype = clean.dtype if clean.is_floating_point() else torch.get_default_dtype()
    first = clean[:1].to(dtype)
    low = max(threat.bounds[0], float(first.min()) - 1)
    high = min(threat.bounds[1], float(first.max()) + 1)
    draws = torch.Generator("cpu").manual_seed(0)
    noise = low + (high - low) * torch.rand(first.shape, generator=draws, device="cpu")
    asked = torch.cat([first + _NOISE * (noise.to(first) - first), noise.to(first)])
    dark, light = (torch.full_like(first, value) for value in (low, high))
    before = _state(model)
    with_dark = model(torch.cat([asked, dark]))[:2]
    with_light = model(torch.cat([asked[:1], light, light, asked[1:]]))[::3]
    if _state(model) != before:
        raise NotImplementedError(
            "the model's forward changes its own parameters or buffers, so that its answer "
            "may depend on what it was asked before: call model.eval(), or leave that out"
        )
    traced, near = evaluate_graph(graph, asked)
    _refuse_labels(labels, traced.shape[1])
    if with_dark.shape != traced.shape or with_dark.dtype != traced.dtype:
        raise _not_traced()
    if not bool(((with_dark - with_light).abs() <= near).all()):
        raise NotImplementedError(
            "the model's answer for one image depends on the others of the batch, or on "
            "chance: nothing holds for the image alone"
        )
    if not bool(((with_dark - traced).abs() <= near).all()):
        raise _not_traced()


def _state(model: nn.Module) -> list[tuple[int, int]]:
    """Return which tensors a model has, and how often each was written to."""
    tensors = [*model.parameters(), *model.buffers()]
    return [(id(t), 0 if t.is_inference() else t._version) for t in tensors]


def _not_traced() -> NotImplementedError:
    return NotImplementedError(
        "the model answers otherwise than the layers and functions that its forward was "
        "seen to call, by more than rounding: it may look at types, use autocast, or have "
        "hooks on all modules; or its values are so large that float32 is too coarse, and "
        "model.double() helps"
    )


def _refuse_labels(labels: Tensor, classes: int) -> None:
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or most >= classes:
        raise ValueError(
            f"labels reach from {least} to {most}, and the model has {classes} classes, "
            f"0 to {classes - 1}"
        )
