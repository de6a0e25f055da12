"""The passes that an attack makes, counted, and the same passes alone.

An attack cannot cost less than its forward and input-gradient passes. They are counted with
their batch sizes as the attack runs, then made again with nothing between them.
"""

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

from advnorm.model_state import frozen_parameters


class Counted(nn.Module):
    """A model that counts its passes by (batch size, with input gradient or not)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.passes: Counter[tuple[int, bool]] = Counter()

    def forward(self, images: Tensor) -> Tensor:
        """Count and answer."""
        self.passes[len(images), images.requires_grad] += 1
        logits: Tensor = self.model(images)
        return logits


def count(
    model: nn.Module, attack: Callable[[nn.Module], object]
) -> Counter[tuple[int, bool]]:
    """Return the passes that an attack on ``model`` makes."""
    counted = Counted(model).eval()
    attack(counted)
    return counted.passes


def bare(model: nn.Module, images: Tensor, passes: Counter[tuple[int, bool]]) -> None:
    """Make the passes, largest first, and nothing else."""
    with frozen_parameters(model):
        for (size, differentiate), times in sorted(passes.items(), reverse=True):
            x = images[torch.arange(size) % len(images)]
            for _ in range(times):
                _one(model, x, differentiate)


def _one(model: nn.Module, x: Tensor, differentiate: bool) -> None:
    if not differentiate:
        with torch.inference_mode():
            model(x)
        return
    x = x.detach().requires_grad_()
    torch.autograd.grad(model(x).sum(), x)
