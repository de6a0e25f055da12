"""The last linear layer of a model: its input is what the model's features are."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.model_output import read_logits


def find_last_layer(model: nn.Module, images: Tensor, classes: int) -> nn.Linear | None:
    """Return the linear layer whose outputs decide the prediction; ``None`` if none does.

    A pass of a few images shows which layers have an output for each class (with two
    classes a single one is enough). From the last to the first, the outputs are moved on by
    one class: the layer is that where all predictions move too. There is none where logits
    come out of a convolution, a plain function or compiled code, or are those of several
    networks together.
    """
    called: dict[nn.Linear, None] = {}

    def note(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        assert isinstance(layer, nn.Linear)
        wide = output.ndim == 2 and len(output) == len(images)
        if wide and (output.shape[1] == classes or (output.shape[1], classes) == (1, 2)):
            called.pop(layer, None)
            called[layer] = None

    with ExitStack() as stack, torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                stack.callback(layer.register_forward_hook(note).remove)
        before = read_logits(model(images)).argmax(1)
    for layer in reversed(called):
        handle = layer.register_forward_hook(_move_on)
        try:
            with torch.no_grad():
                after = read_logits(model(images)).argmax(1)
        finally:
            handle.remove()
        if torch.equal(after, (before + 1) % classes):
            return layer
    return None


def _move_on(layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """Move each logit to the next class; a single output changes its sign."""
    return -output if output.shape[1] == 1 else output.roll(1, 1)


class LayerPass:
    """What the last linear layer saw and returned in a pass."""

    features: Tensor
    outputs: Tensor


@contextmanager
def recorded(layer: nn.Linear) -> Iterator[LayerPass]:
    """Record the input and the output of a layer, of the last pass at any time."""
    seen = LayerPass()

    def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.features, seen.outputs = inputs[0].detach(), output.detach()

    handle = layer.register_forward_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


class PassCounter:
    """Counts the passes of a model: rows, and two more for each that has a gradient."""

    def __init__(self) -> None:
        self.passes = 0

    def note(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Count one call; a forward pre-hook."""
        images = inputs[0]
        graph = images.requires_grad and torch.is_grad_enabled()
        self.passes += len(images) * (3 if graph else 1)


@contextmanager
def passes_counted(model: nn.Module) -> Iterator[PassCounter]:
    """Count the passes of a model."""
    counter = PassCounter()
    handle = model.register_forward_pre_hook(counter.note)
    try:
        yield counter
    finally:
        handle.remove()
