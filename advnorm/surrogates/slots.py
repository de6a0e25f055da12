r"""Layers whose backward pass is replaced while an attack searches (BPDA).

Backward pass differentiable approximation (Athalye et al., 2018,
https://arxiv.org/abs/1802.00420, section 4.1): for a layer :math:`f` and a differentiable
:math:`g \approx f`, the forward pass is that of :math:`f`, the backward pass that of
:math:`g`,

.. math::
    y = f(x), \qquad \frac{\partial \ell}{\partial x} = J_g(x)^T \frac{\partial \ell}{\partial y}.
"""  # noqa: E501

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from advnorm.surrogates.registry import SURROGATES, Surrogate
from advnorm.text import shorten

LayerKey = str | type[nn.Module]
"""The dotted name of a layer, the name of its class, or the class."""


class Slot(NamedTuple):
    """A layer, and what its backward pass is replaced by."""

    name: str
    layer: nn.Module
    surrogate: Surrogate
    label: str
    """The surrogate, as records write it."""


def find_slots(model: nn.Module, layers: Mapping[LayerKey, Surrogate | str]) -> list[Slot]:
    """Return the layers that are named, each with its surrogate; refuse unknown ones."""
    named = {name: layer for name, layer in model.named_modules() if name}
    if layers and not named:
        raise ValueError(
            "adapt names layers, and the model is a function or has no layers of its own: "
            "pass the torch.nn.Module itself"
        )
    slots: dict[str, Slot] = {}
    for key, surrogate in layers.items():
        function = SURROGATES[surrogate] if isinstance(surrogate, str) else surrogate
        if not callable(function):
            raise ValueError(
                f"the surrogate of layer {key!r} is a {type(surrogate).__name__}: give a "
                f"differentiable function, or one of {', '.join(SURROGATES)}"
            )
        for name in _matches(named, key):
            if name in slots:
                raise ValueError(f"layer {name!r} has two surrogates: leave one out")
            slots[name] = Slot(name, named[name], function, _label(surrogate))
    return list(slots.values())


def _matches(named: Mapping[str, nn.Module], key: LayerKey) -> list[str]:
    """Return the names of the layers that a key means."""
    if isinstance(key, str) and key in named:
        return [key]
    if isinstance(key, str):
        chosen = [name for name, layer in named.items() if type(layer).__name__ == key]
    elif isinstance(key, type):
        chosen = [name for name, layer in named.items() if isinstance(layer, key)]
    else:
        raise ValueError(
            f"adapt maps the name or class of a layer to a surrogate; {shorten(str(key))} "
            "is neither"
        )
    if chosen:
        return chosen
    text = key if isinstance(key, str) else key.__name__
    kinds = {type(layer).__name__ for layer in named.values()}
    close = get_close_matches(text, [*named, *kinds], n=3, cutoff=0.4)
    hint = f"the nearest names are {', '.join(map(repr, close))}; " if close else ""
    raise ValueError(
        f"no layer {shorten(text)}: {hint}name one of model.named_modules(), or its class"
    )


def _label(surrogate: Surrogate | str) -> str:
    if isinstance(surrogate, str):
        return surrogate
    return getattr(surrogate, "__name__", type(surrogate).__name__)


@contextmanager
def substituted(slots: Sequence[Slot]) -> Iterator[list[str]]:
    """Replace the backward passes of layers for the block; yield the names of those run.

    The layers themselves run without gradients, on detached inputs: what they answer is
    what they answer in a verdict.
    """
    called: list[str] = []
    before = [slot.layer.__dict__.get("forward") for slot in slots]
    try:
        for slot in slots:
            slot.layer.__dict__["forward"] = _forward(slot, slot.layer.forward, called)
        yield called
    finally:
        for slot, own in zip(slots, before, strict=True):
            slot.layer.__dict__.pop("forward", None)
            if own is not None:
                slot.layer.__dict__["forward"] = own


def _forward(
    slot: Slot, plain: Callable[..., Any], called: list[str]
) -> Callable[..., Tensor]:
    def forward(*args: Any, **kwargs: Any) -> Tensor:
        called.append(slot.name)
        with torch.no_grad():
            value = plain(
                *map(_detached, args), **{k: _detached(v) for k, v in kwargs.items()}
            )
        if not isinstance(value, Tensor):
            raise ValueError(
                f"layer {slot.name!r} returns a {type(value).__name__}, and a surrogate "
                "takes the place of one tensor: name a layer inside it"
            )
        if not torch.is_grad_enabled():
            return value
        return _substitute(slot, value, slot.surrogate(*args, **kwargs))

    return forward


def _substitute(slot: Slot, value: Tensor, stand_in: object) -> Tensor:
    """Return the layer's values with the gradient of the surrogate."""
    if not isinstance(stand_in, Tensor):
        raise ValueError(
            f"the surrogate of layer {slot.name!r} returns a {type(stand_in).__name__}: "
            "return one tensor"
        )
    if stand_in.shape != value.shape:
        raise ValueError(
            f"the surrogate of layer {slot.name!r} returns shape {tuple(stand_in.shape)}, "
            f"the layer {tuple(value.shape)}: give a surrogate of the layer's output shape"
        )
    stand_in = stand_in.to(value.dtype)
    substitute: Tensor = _Substitute.apply(value, stand_in)  # type: ignore[no-untyped-call]
    return substitute


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class _Substitute(torch.autograd.Function):
    """The first argument forward, the second one backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, stand_in: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, grads[0]
