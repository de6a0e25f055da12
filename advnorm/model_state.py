"""States of a model that last for a block and are then restored, also on error."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen_parameters(model: nn.Module) -> Iterator[None]:
    """Compute no gradients of parameters; an attack needs only those of its input."""
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every layer in evaluation mode, then restore each layer's own mode."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
