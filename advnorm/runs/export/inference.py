"""A copy of a model for inference alone: plain PyTorch layers, one branch, no training.

Exporters follow a model with a batch of unknown size. The layers for training cannot be
followed so: they look at the number of rows to route samples, and call autograd functions
of their own. The copy has layers with fixed statistics in their place.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations

from advnorm.models.checkpointing import Blocks
from advnorm.norms import Domain, DualNorm, collapse, route
from advnorm.runs.export.dual_inference import InferenceDualNorm


def inference_copy(
    model: nn.Module, images: Tensor, branch: Domain = "adversarial"
) -> nn.Module:
    """Return a copy of ``model`` in evaluation, on the CPU, with plain layers.

    Batch norms of any kind become ``nn.BatchNorm1d`` to ``3d`` of ``branch``, dual norms
    their gate with fixed statistics. The copy runs once on ``images``, which shows the
    dimensions of each layer's input.

    Raises:
        NotImplementedError: A layer cannot be copied; the message names it.
    """
    copy = deepcopy(model).cpu().eval()
    with torch.no_grad(), route(copy, domain=branch):
        copy(images.cpu())
    copy = collapse(_with_plain_gates(copy), branch)
    for layer in list(copy.modules()):
        if isinstance(layer, Blocks):
            layer.recompute = False
        if is_parametrized(layer):
            for name in list(layer.parametrizations):  # type: ignore[arg-type]
                remove_parametrizations(layer, name, leave_parametrized=True)
    return copy.requires_grad_(False)


def _with_plain_gates(model: nn.Module) -> nn.Module:
    """Replace the dual norms of a model; one that is used twice stays one layer."""
    plain: dict[nn.Module, nn.Module] = {}

    def replaced(layer: nn.Module) -> nn.Module:
        if isinstance(layer, DualNorm):
            return plain.setdefault(layer, InferenceDualNorm(layer))
        for name, child in layer.named_children():
            setattr(layer, name, replaced(child))
        return layer

    return replaced(model)
