"""Public networks for MNIST, from weights of auto_LiRPA's examples."""

from pathlib import Path

import torch
from torch import nn

from advnorm.recipes import find
from advnorm.training.components import load_data


def public(path: Path) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network of auto_LiRPA's, whose shape follows from its weights; and MNIST."""
    weights = torch.load(path, weights_only=True, map_location="cpu")
    weights = weights.get("state_dict", weights)
    layers: list[nn.Module] = []
    for weight in [w for name, w in weights.items() if name.endswith("weight")]:
        if weight.ndim == 4:
            layers.append(nn.Conv2d(*weight.shape[1::-1], weight.shape[-1], 2, 1))
        else:
            is_first = all(isinstance(layer, nn.Conv2d | nn.ReLU) for layer in layers)
            layers += [nn.Flatten()] if is_first else []
            layers.append(nn.Linear(*weight.shape[::-1]))
        layers.append(nn.ReLU())
    model = nn.Sequential(*layers[:-1])
    model.load_state_dict(dict(zip(model.state_dict(), weights.values(), strict=True)))
    data = load_data(find("mnist.ibp"), root=None)
    batch = next(data.test.batches(torch.arange(1000), batch_size=1000, device=None))
    return model.eval(), batch.images, batch.labels
