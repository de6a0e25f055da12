r"""Signs of masking in single layers: where an adaptive search needs a slot.

Each layer is called alone, on what reaches it in a pass. With signs :math:`v` and the
deviation :math:`s` of its input, it *jumps* if

.. math::
    \max |f(x + 0.01 s v) - f(x)| > \tfrac12 \max |f(x + 0.1 s v) - f(x)|,

where a continuous layer has a tenth. Its gradient is *cut* if there is none, and *wrong*
if it differs from finite differences by more than half. The latter is measured of single
layers alone that neither torch nor this package defines: pools have ties, and norms of few
features are steep.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from advnorm.draws import Draws
from advnorm.model_state import frozen_parameters
from advnorm.surrogates import seeded

_FEW = 8
"""Samples: each has many features."""
_SMALL, _LARGE = 0.01, 0.1
"""Steps, in deviations of a layer's input."""
_JUMP, _WRONG = 0.5, 0.5
_DIRECTIONS = 4


class LayerSigns(NamedTuple):
    """What a layer does to gradients."""

    name: str
    """In the model; empty for what its own forward does between layers."""
    kind: str
    """Its class."""
    sign: str
    """``jumps``, ``cut``, ``wrong``, ``random``, or empty."""
    same_shape: bool
    """Whether its output has the shape of its input."""


class _Call(NamedTuple):
    """The first call of a layer in a pass."""

    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any


def layer_signs(model: nn.Module, images: Tensor) -> list[LayerSigns]:
    """Return the signs of the layers that have any, the smallest parts that show them."""
    few = images[:_FEW].detach().clone()
    calls, signs = _first_calls(model, few), list[LayerSigns]()
    for name, layer in reversed(list(model.named_modules())):  # inner layers first
        inner = [s for s in signs if s.name.startswith(f"{name}." if name else "")]
        call = calls.get(layer)
        own = next(layer.children(), None) is None or not _is_known(layer)
        if inner or not own or call is None or not _is_simple(call):
            continue
        sign = _sign_of(layer, call)
        if sign:
            same = call.inputs[0].shape == call.output.shape
            signs.append(LayerSigns(name, type(layer).__name__, sign, same))
    return signs[::-1]


def _first_calls(model: nn.Module, images: Tensor) -> dict[nn.Module, _Call]:
    calls: dict[nn.Module, _Call] = {}

    def keep(
        layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        inputs = tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in args)
        calls.setdefault(layer, _Call(inputs, kwargs, output))

    handles = [
        layer.register_forward_hook(keep, with_kwargs=True) for layer in model.modules()
    ]
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), images.dtype)
    try:
        with torch.no_grad(), seeded(0, images):
            model(images.to(own))
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _is_simple(call: _Call) -> bool:
    """Tell whether a layer maps a tensor of floats to another."""
    tensors = (call.inputs[0] if call.inputs else None, call.output)
    return all(isinstance(t, Tensor) and t.is_floating_point() for t in tensors)


def _sign_of(layer: nn.Module, call: _Call) -> str:
    x, rest = call.inputs[0], call.inputs[1:]

    def run(z: Tensor, key: int = 0) -> Tensor:
        with seeded(key, z):
            output: Tensor = layer(z.clone(), *rest, **call.kwargs)
        return output

    try:
        with torch.no_grad():
            here = run(x)
            if not torch.equal(here, run(x, 1)):
                return "random"
            step = x.std(correction=0).clamp(min=torch.finfo(x.dtype).tiny)
            jumps = _jumps(run, x, here, step)
        return "jumps" if jumps else _gradient_sign(layer, run, x, step)
    except (RuntimeError, ValueError, TypeError):  # a layer that cannot be called alone
        return ""


def _jumps(run: Any, x: Tensor, here: Tensor, step: Tensor) -> bool:
    """Tell whether a small step changes the output nearly as much as a larger one."""
    v = _signs(x, 0)
    small, large = (
        (run(x + share * step * v) - here).flatten(1).abs().amax(1)
        for share in (_SMALL, _LARGE)
    )
    seen = large > 0
    return bool(seen.any()) and bool((small / large)[seen].median() > _JUMP)


def _gradient_sign(layer: nn.Module, run: Any, x: Tensor, step: Tensor) -> str:
    """Compare the gradient along random directions with finite differences."""
    with torch.enable_grad(), frozen_parameters(layer):
        leaf = x.clone().requires_grad_()
        output = run(leaf)
        if not output.requires_grad:
            return "cut"
        w = _signs(output, 1)
        (grad,) = torch.autograd.grad((w * output).sum(), leaf, allow_unused=True)
    if grad is None:
        return "cut"
    if next(layer.children(), None) is not None or _is_known(layer):
        return ""
    predicted, measured = [], []
    with torch.no_grad():
        for number in range(_DIRECTIONS):
            v = _signs(x, 2 + number)
            move = _SMALL * step * v
            change = (w * (run(x + move) - run(x - move))).flatten(1).sum(1).double()
            measured.append(change / (2 * _SMALL * step.double()))
            predicted.append((grad * v).flatten(1).sum(1).double())
    slopes, own = torch.stack(measured), torch.stack(predicted)
    size = max(float(slopes.norm()), float(own.norm()))
    return "wrong" if float((slopes - own).norm()) > _WRONG * size else ""


def _is_known(layer: nn.Module) -> bool:
    return type(layer).__module__.partition(".")[0] in ("torch", "advnorm")


def _signs(like: Tensor, number: int) -> Tensor:
    draws = Draws.of(0, torch.arange(len(like), device=like.device))
    bits = draws.stream("layer signs", number).bits(*like.shape[1:])
    return torch.where(bits > 0, 1.0, -1.0).to(like.dtype)
