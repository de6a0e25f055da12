"""Networks that others trained: weights of auto_LiRPA's ``examples/vision/pretrained``."""

from pathlib import Path

import torch
from torch import Tensor, nn

from advnorm.recipes import find
from advnorm.training.components import load_data


def load_public(path: Path, count: int = 1000) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network for MNIST whose shape follows from its weights, and test samples.

    Convolutions have stride 2 and padding 1, as in ``mnist_a_adv.pth``, ``kw_mnist.pth``
    and ``mnist_cnn_small.pth``. MNIST comes from ``ADVNORM_DATA``.
    """
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
    batch = next(data.test.batches(torch.arange(count), batch_size=count, device=None))
    return model.eval(), batch.images, batch.labels
