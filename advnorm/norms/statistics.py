"""Check the running statistics of a model."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def check_statistics(model: nn.Module) -> None:
    """Refuse running statistics that are not finite, or variances below zero."""
    for path, layer in model.named_modules():
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
            mean, var = layer.running_mean, layer.running_var
            assert var is not None
            if not (torch.isfinite(mean).all() and torch.isfinite(var).all()):
                raise ValueError(
                    f"the running statistics of layer {path!r} are NaN or infinite: go "
                    "back to an earlier checkpoint"
                )
            if (var < 0).any():
                raise ValueError(
                    f"a running variance of layer {path!r} is negative: the weights are "
                    "damaged, load them again"
                )
