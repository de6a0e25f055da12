"""States of a model that last for a block and are put back, also on error."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen_parameters(model: nn.Module) -> Iterator[None]:
    """Compute no gradients of parameters: an attack needs those of its input alone."""
    free = [p for p in model.parameters() if p.requires_grad]
    for parameter in free:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in free:
            parameter.requires_grad_(True)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every layer in evaluation: dropout off, running statistics; restore each."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
