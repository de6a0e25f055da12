"""Dual batch norm at test time, in plain PyTorch operations without branches."""

import torch
from torch import Tensor, nn

from advnorm.norms import BatchNorm, DualNorm


class InferenceDualNorm(nn.Module):
    """Dual batch norm with fixed statistics, whose gate weighs two normalized values."""

    # u and v are x normalized by the adversarial and by the clean statistics, v = r u + s.
    # The terms are grouped as in advnorm.norms.dual_kernel, so that both round alike.
    # The source of forward is part of exported files: it uses torch and tensors only.

    clean_mean: Tensor
    clean_scale: Tensor
    adversarial_mean: Tensor
    adversarial_scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, layer: DualNorm) -> None:
        super().__init__()
        scale = _scale(layer.clean)
        values = {
            "clean_mean": layer.clean.running_mean,
            "clean_scale": scale,
            "adversarial_mean": layer.adversarial.running_mean,
            "adversarial_scale": _scale(layer.adversarial),
            "weight": torch.ones_like(scale) if layer.weight is None else layer.weight,
            "bias": torch.zeros_like(scale) if layer.bias is None else layer.bias,
        }
        assert layer.clean.dims is not None, "the layer has had no input"
        shape = (-1, *(1,) * (layer.clean.dims - 2))  # broadcasts over positions
        for name, value in values.items():
            assert value is not None
            tensor = value.detach().clone().reshape(shape)
            if name in ("weight", "bias"):
                self.register_parameter(name, nn.Parameter(tensor))
            else:
                self.register_buffer(name, tensor)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``(batch, features, ...)``, each position by its own gate."""
        u = (x - self.adversarial_mean) * self.adversarial_scale
        r = self.clean_scale / self.adversarial_scale
        s = (self.adversarial_mean - self.clean_mean) * self.clean_scale
        constant = (0.5 * s * s - torch.log(r)).sum(0)
        log_odds = (u * (0.5 * (r * r - 1) * u + r * s)).sum(1, keepdim=True) + constant
        posterior = torch.sigmoid(log_odds)
        v = r * u + s
        return self.weight * (v + posterior * (u - v)) + self.bias


def _scale(branch: BatchNorm) -> Tensor:
    assert branch.running_var is not None
    return torch.rsqrt(branch.running_var + branch.eps)
