"""Features of a network: the inputs of its norms, or the outputs of its layers."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.diagnosis.common import BATCH
from advnorm.norms.moments import Moments, measure_moments
from advnorm.registry import unknown

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_OTHER_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d)


def feature_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers at which features are recorded, by name.

    These are the norms: features are their inputs. In a network without norms they are the
    outputs of all linear and convolution layers but the last. A norm that is made of others
    (mixture, dual) counts once.
    """
    norms: dict[str, nn.Module] = {}
    for name, layer in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in norms)
        if not inside and _is_norm(layer):
            norms[name] = layer
    if norms:
        return norms
    plain = {n: layer for n, layer in model.named_modules() if isinstance(layer, _WEIGHTED)}
    return dict(list(plain.items())[:-1])


def require_feature_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return :func:`feature_layers`, or refuse a model that has none."""
    layers = feature_layers(model)
    if not layers:
        raise ValueError(
            "the model has neither a norm nor a hidden layer, so it has no features to "
            "examine"
        )
    return layers


@contextmanager
def record_features(
    model: nn.Module, names: Iterable[str] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Collect the features of the passes in the block by layer; the last pass counts."""
    layers, features = feature_layers(model), dict[str, Tensor]()
    chosen = list(layers) if names is None else list(names)
    for name in chosen:
        if name not in layers:
            raise unknown("layer with features", name, list(layers))
    handles = [_hook(layers[name], name, features) for name in chosen]
    try:
        yield features
    finally:
        for handle in handles:
            handle.remove()


def feature_moments(model: nn.Module, images: Tensor) -> dict[str, Moments]:
    """Return the batch moments of the features of every layer, without gradients."""
    with torch.no_grad(), record_features(model) as features:
        model(images)
    return {name: measure_moments(value) for name, value in features.items()}


def gather_features(model: nn.Module, images: Tensor, name: str) -> Tensor:
    """Return the features of one layer, one row per sample, computed in batches.

    For modes in which samples do not depend on each other. The rows are kept on the CPU,
    which has room for wide feature maps.
    """
    rows = []
    for batch in torch.split(images, BATCH):
        with torch.no_grad(), record_features(model, [name]) as features:
            model(batch)
        rows.append(features[name].flatten(1).cpu())
    return torch.cat(rows)


def _is_norm(layer: nn.Module) -> bool:
    ours = type(layer).__module__.startswith("advnorm.norms")
    return ours or isinstance(layer, (_BatchNorm, *_OTHER_NORMS))


def _hook(layer: nn.Module, name: str, features: dict[str, Tensor]) -> Any:
    def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        features[name] = inputs[0].detach()

    def after(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        features[name] = output.detach()

    if _is_norm(layer):
        return layer.register_forward_pre_hook(before)
    return layer.register_forward_hook(after)
