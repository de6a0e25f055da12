"""Instance norms that keep running statistics, in each mode.

Torch moves theirs whenever a pass normalizes with the input's own: no flag of the layer
says otherwise, as that of a batch norm does.
"""

from functools import partial

from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm


def tracks(layer: nn.Module) -> bool:
    """Tell whether a layer is an instance norm that keeps running statistics."""
    return isinstance(layer, _InstanceNorm) and layer.running_mean is not None


def let_move(layer: _InstanceNorm) -> None:
    """Let a pass in training move the running statistics, as torch does."""
    layer.__dict__.pop("forward", None)


def let_rest(layer: _InstanceNorm) -> None:
    """Let a pass in training use the input's statistics and leave the running ones."""
    layer.__dict__["forward"] = partial(_unmoved, layer)


def _unmoved(layer: _InstanceNorm, input: Tensor) -> Tensor:
    kept = layer.running_mean, layer.running_var
    layer.running_mean = layer.running_var = None
    try:
        return type(layer).forward(layer, input)
    finally:
        layer.running_mean, layer.running_var = kept
