"""Checks that a folded model equals the plain one, and that passes change nothing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.model_output import read_logits

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""Largest difference of logits, as a share of the largest logit."""
COARSE = 0.25
"""The same in bfloat16, which has 8 bits: it only catches an overflow."""
_SMALL = 1e-3

Logits = Callable[[Tensor], Tensor]


def close(first: Tensor, other: Tensor, tolerance: float) -> bool:
    """Compare two tensors by their largest entry; NaN and infinity are equal to nothing."""
    if first.shape != other.shape or first.dtype != other.dtype:
        return False
    size = first.abs().amax().clamp_min(_SMALL)
    return bool((first - other).abs().amax() <= tolerance * size)


def same_logits(model: nn.Module, fast: Logits, images: Tensor) -> bool:
    """Compare the logits of a few images, in the precision of the model."""
    with torch.no_grad():
        plain = read_logits(model(images))
        return close(plain, fast(images), TOLERANCE[plain.dtype])


def has_gradients(logits_fn: Logits, images: Tensor) -> bool:
    """Take the gradient of a few images; an error says that something was overwritten."""
    with torch.enable_grad():
        x = images.detach().clone().requires_grad_()
        logits = logits_fn(x)
        if not logits.requires_grad:
            return False
        torch.autograd.grad(logits.sum(), x)
    return True


def moves_state(model: nn.Module, images: Tensor) -> bool:
    """Tell whether a pass changes a tensor, an attribute or the random state.

    What it changed in tensors and in the random state is put back.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values = {name: t.detach().clone() for name, t in tensors.items()}
    attributes, random = _attributes(model), torch.get_rng_state()
    with torch.no_grad():
        model(images)
        after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        same = attributes == _attributes(model) and after.keys() == tensors.keys()
        same = same and torch.equal(random, torch.get_rng_state())
        torch.set_rng_state(random)
        for name, before in values.items():
            if not _equal(tensors[name], before):
                tensors[name].copy_(before)
                same = False
    return not (same and all(after[name] is tensors[name] for name in tensors))


def _equal(first: Tensor, other: Tensor) -> bool:
    return torch.equal(first, other) or bool(((first == other) | first.isnan()).all())


def _attributes(model: nn.Module) -> list[Any]:
    """Return what identifies the attributes of every module that are no tensors."""
    return [
        {name: _identity(value) for name, value in vars(module).items() if name != "dims"}
        for module in model.modules()
    ]


def _identity(value: object) -> object:
    if isinstance(value, list | dict | set):
        return id(value), len(value)
    return value if isinstance(value, bool | int | float | str) else id(value)
