"""Models with weights and statistics that no default hides."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm import models
from advnorm.models import Standardize
from advnorm.norms import NORMS, DualNorm
from advnorm.norms.affine import DomainParameters

SHAPES = {
    "cnn_small": ((1, 14, 14), {"width": 4}),
    "preact_resnet18": ((3, 8, 8), {"width": 4}),
    "resnet20": ((3, 8, 8), {"width": 4}),
    "wide_resnet": ((3, 8, 8), {"depth": 10, "widen": 1}),
    "vgg11": ((3, 32, 32), {"width": 2}),
}
NAMES = [
    *("batch", "mixture", "affine", "borrowed", "median", "dual"),
    *("group", "layer", "none"),
]


def shuffle(model: nn.Module, generator: torch.Generator) -> None:
    """Draw statistics, scales of both signs, and shifts."""
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                layer.running_mean.normal_(0, 0.5, generator=generator)
                layer.running_var.uniform_(0.3, 3, generator=generator)
            kinds = (_BatchNorm, DomainParameters, DualNorm, nn.GroupNorm)
            if isinstance(layer, kinds) and layer.weight is not None:
                layer.weight.normal_(1, 0.7, generator=generator)
                layer.bias.normal_(0, 0.5, generator=generator)


def build(name: str, norm: str, dtype: torch.dtype = torch.float64, **options) -> nn.Module:
    """Build a small model of a family in evaluation."""
    shape, own = SHAPES[name]
    torch.manual_seed(0)
    standardize = Standardize([0.4] * shape[0], [0.2] * shape[0])
    model = models.build(
        name,
        shape=shape,
        classes=10,
        norm=NORMS[norm](**options),
        standardize=standardize,
        options=own,
    ).to(dtype)
    shuffle(model, torch.Generator().manual_seed(1))
    return model.eval()


def images_of(name: str, dtype: torch.dtype = torch.float64, count: int = 6):
    """Draw images of a family's shape."""
    torch.manual_seed(2)
    return torch.rand(count, *SHAPES[name][0], dtype=dtype)
