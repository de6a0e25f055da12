"""Check that the output for an image does not depend on the rest of the batch.

And that the traced graph reproduces it. Certificates are refused otherwise.
"""

import torch
from torch import Tensor, nn

from advnorm.bounds.box import InputSet
from advnorm.bounds.graph import Graph
from advnorm.bounds.interval import evaluate_graph

_NOISE = 0.1
"""Its share in the first probe."""


def check_independence(
    model: nn.Module, graph: Graph, clean: Tensor, labels: Tensor, threat: InputSet
) -> None:
    """Refuse a model whose output depends on other images or on chance, or is not traced.

    Two probes, an image with a little noise and one of noise alone, go through the model
    once in a batch with a dark image, and once with two light ones: rules see one function
    at a time, and some mix samples without a trace of it. Then the graph has to give the
    same logits for both: a branch on types, autocast inside of ``forward`` and hooks on all
    modules leave no trace either. What rounding may cost is allowed; the noise is there
    because norms turn a map that is constant into rounding errors.
    """
    dtype = clean.dtype if clean.is_floating_point() else torch.get_default_dtype()
    first = clean[:1].to(dtype)
    low = max(threat.bounds[0], float(first.min()) - 1)
    high = min(threat.bounds[1], float(first.max()) + 1)
    draws = torch.Generator("cpu").manual_seed(0)
    noise = low + (high - low) * torch.rand(first.shape, generator=draws, device="cpu")
    probes = torch.cat([first + _NOISE * (noise.to(first) - first), noise.to(first)])
    dark, light = (torch.full_like(first, value) for value in (low, high))
    before = _state(model)
    with_dark = model(torch.cat([probes, dark]))[:2]
    with_light = model(torch.cat([probes[:1], light, light, probes[1:]]))[::3]
    if _state(model) != before:
        raise NotImplementedError(
            "the model's forward changes its own parameters or buffers, so that its answer "
            "may depend on what it was asked before: call model.eval(), or leave that out"
        )
    traced, near = evaluate_graph(graph, probes)
    _check_labels(labels, traced.shape[1])
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
    """Return the tensors of a model and their version counters: both change on a write."""
    tensors = [*model.parameters(), *model.buffers()]
    return [(id(t), 0 if t.is_inference() else t._version) for t in tensors]


def _not_traced() -> NotImplementedError:
    return NotImplementedError(
        "the model answers otherwise than the layers and functions that its forward was "
        "seen to call, by more than rounding: it may look at types, use autocast, or have "
        "hooks on all modules; or its values are so large that float32 is too coarse, and "
        "model.double() helps"
    )


def _check_labels(labels: Tensor, classes: int) -> None:
    smallest, largest = int(labels.min()), int(labels.max())
    if smallest < 0 or largest >= classes:
        raise ValueError(
            f"labels reach from {smallest} to {largest}, and the model has {classes} "
            f"classes, 0 to {classes - 1}"
        )
