"""The first layer with weights, and how its weights act on the input."""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.diagnosis.common import frozen_eval
from advnorm.diagnosis.features import feature_layers, record_features
from advnorm.norms import Mode, batch_norms
from advnorm.norms.moments import measure_moments

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def first_layer(model: nn.Module) -> nn.Module:
    """Return the first layer that has a weight matrix or filters."""
    layers = [layer for layer in model.modules() if isinstance(layer, _WEIGHTED)]
    if not layers:
        raise ValueError("the model has neither a linear layer nor a convolution")
    return layers[0]


def is_linear_classifier(model: nn.Module) -> bool:
    """Tell whether the only layer with weights is a linear one."""
    layers = [layer for layer in model.modules() if isinstance(layer, _WEIGHTED)]
    return len(layers) == 1 and isinstance(layers[0], nn.Linear)


def input_norms(model: nn.Module) -> dict[str, nn.Module]:
    """Return the norms with running statistics that come before the first layer."""
    norms: dict[str, nn.Module] = {}
    layers = feature_layers(model)
    for name, layer in model.named_modules():
        if isinstance(layer, _WEIGHTED):
            break
        if name in layers and batch_norms(layer):
            norms[name] = layer
    return norms


def effective_weights(
    model: nn.Module,
    images: Tensor,
    *,
    statistics: Mode = "running",
    c: float | None = None,
) -> Tensor:
    r"""Return the first linear layer's weights as they act on the input.

    Behind batch norm they are :math:`w \gamma / \sqrt{\sigma^2 + c}` (galloway2019,
    section 3), with the running variance or that of ``images`` (``batch``), and with the
    norm's own constant c or another one; a fixed standardization counts too. If the layers
    before are not an affine map of each value by itself (for example an image standardized
    by its own moments), the weights are returned unchanged. Shape ``(units, features)``.
    """
    linear = first_layer(model)
    if not isinstance(linear, nn.Linear):
        raise ValueError(
            "boundaries are those of a linear layer, but the first layer of this model is "
            f"a {type(linear).__name__}"
        )
    weight = linear.weight.detach()
    if linear.in_features != images[0].numel():
        raise ValueError(
            f"the first linear layer has {linear.in_features} inputs, the images have "
            f"{images[0].numel()} values: it does not act on the input directly"
        )
    copy = deepcopy(model)
    _set_constant(copy, c)
    if statistics == "batch":
        _set_statistics(copy, images)
    return weight * _scale(copy, images)


def _set_constant(model: nn.Module, c: float | None) -> None:
    for norm in input_norms(model).values():
        for layer in norm.modules():
            if c is not None and hasattr(layer, "eps"):
                setattr(layer, "eps", c)  # noqa: B010


def _set_statistics(model: nn.Module, images: Tensor) -> None:
    """Set the running statistics of the norms before to the moments of the images."""
    norms = input_norms(model)
    with (
        frozen_eval(model, "batch"),
        torch.no_grad(),
        record_features(model, list(norms)) as features,
    ):
        model(images)
    for name, norm in norms.items():
        moments = measure_moments(features[name])
        for layer in batch_norms(norm):
            _write(layer, moments.mean, moments.var)


def _write(layer: _BatchNorm, mean: Tensor, var: Tensor) -> None:
    if layer.running_mean is None or layer.running_var is None:
        raise ValueError("a norm before the first layer keeps no running statistics")
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)


def _scale(model: nn.Module, images: Tensor) -> Tensor:
    """Return the slope of each input of the first linear layer, or ones if not affine."""
    recorded: list[Tensor] = []
    layer = first_layer(model)
    handle = layer.register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0]))
    count = images[0].numel()
    offset = torch.linspace(0.1, 0.3, count, dtype=images.dtype, device=images.device)
    x = torch.stack([images[0], images[0] + offset.view_as(images[0])]).requires_grad_()
    with frozen_eval(model), torch.enable_grad():
        model(x)
        (slope,) = torch.autograd.grad(recorded[0].sum(), x)
    handle.remove()
    values, slope = recorded[0].detach().flatten(1), slope[0].flatten()
    affine = torch.allclose(values[1] - values[0], slope * offset, rtol=1e-3, atol=1e-4)
    return slope if affine else torch.ones_like(slope)
