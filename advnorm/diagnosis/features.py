"""What a network sees on its way: the tensors that enter its norms, or leave its layers."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.norms.moments import Moments, measure_moments
from advnorm.registry import unknown

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_PART = 256  # samples a pass
_OTHER_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d)


def feature_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers to look at, by name: the norms, before which features are seen.

    A network without norms is seen after its linear and convolution layers, but the last.
    A norm that is made of others (mixture, dual) is one place.
    """
    found: dict[str, nn.Module] = {}
    for name, layer in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if not inside and _is_norm(layer):
            found[name] = layer
    if found:
        return found
    plain = {n: layer for n, layer in model.named_modules() if isinstance(layer, _WEIGHTED)}
    return dict(list(plain.items())[:-1])


def require_feature_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the places, or say that there is nothing between images and logits."""
    found = feature_layers(model)
    if not found:
        raise ValueError(
            "the model has neither a norm nor a hidden layer: there are no features to "
            "look at"
        )
    return found


@contextmanager
def record_features(
    model: nn.Module, names: Iterable[str] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Collect the features of each pass in the block, by place; the last pass counts."""
    known, seen = feature_layers(model), dict[str, Tensor]()
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        if name not in known:
            raise unknown("place", name, list(known))
    handles = [_hook(known[name], name, seen) for name in chosen]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def feature_moments(model: nn.Module, images: Tensor) -> dict[str, Moments]:
    """Return the batch moments of the features at every place, without gradients."""
    with torch.no_grad(), record_features(model) as seen:
        model(images)
    return {name: measure_moments(features) for name, features in seen.items()}


def gather_features(model: nn.Module, images: Tensor, name: str) -> Tensor:
    """Return the features at one place, a row a sample, taken a part at a time.

    For modes in which samples do not meet; the rows are on the CPU, where a wide map fits.
    """
    parts = []
    for part in torch.split(images, _PART):
        with torch.no_grad(), record_features(model, [name]) as seen:
            model(part)
        parts.append(seen[name].flatten(1).cpu())
    return torch.cat(parts)


def flat(features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return features as one row a sample."""
    return {name: value.flatten(1) for name, value in features.items()}


def _is_norm(layer: nn.Module) -> bool:
    ours = type(layer).__module__.startswith("advnorm.norms")
    return ours or isinstance(layer, (_BatchNorm, *_OTHER_NORMS))


def _hook(layer: nn.Module, name: str, seen: dict[str, Tensor]) -> Any:
    def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen[name] = inputs[0].detach()

    def after(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[name] = output.detach()

    if _is_norm(layer):
        return layer.register_forward_pre_hook(before)
    return layer.register_forward_hook(after)
