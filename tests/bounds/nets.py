"""Random small networks of every layer type, and points of a threat to try on them."""

from functools import cache
from itertools import product

import torch
from torch import nn

from advnorm import norms
from advnorm.models.standardize import Standardize

ACTIVATIONS = {
    "relu": nn.ReLU,
    "leaky": lambda: nn.LeakyReLU(0.2),
    "prelu": nn.PReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "elu": nn.ELU,
    "hardtanh": nn.Hardtanh,
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "mish": nn.Mish,
    "hardswish": nn.Hardswish,
    "selu": nn.SELU,  # has an interval rule alone: rows end there
}
NORMS = {
    "none": nn.Identity,
    "torch": None,
    "batch": norms.BatchNorm,
    "mixture": norms.MixtureNorm,
    "borrowed": norms.BorrowedNorm,
    "affine": norms.AffineNorm,
    "dual": norms.DualNorm,
    "group": lambda features: nn.GroupNorm(1, features),
    "instance": None,
}
CONVOLUTIONS = {
    "plain": dict(kernel_size=2),
    "padded": dict(kernel_size=3, padding=1),
    "strided": dict(kernel_size=2, stride=2, padding=1),
    "dilated": dict(kernel_size=2, dilation=2, padding=2),
    "wide": dict(kernel_size=(1, 3), padding=(0, 2), stride=(1, 2)),
    "same": dict(kernel_size=2, padding="same"),
    "circular": dict(kernel_size=3, padding=1, padding_mode="circular"),
    "grouped": dict(kernel_size=3, padding=1, groups=2),
}
POOLS = {
    "none": nn.Identity,
    "max": lambda: nn.MaxPool2d((1, 2), stride=1),
    "max_padded": lambda: nn.MaxPool2d(2, stride=2, padding=1, ceil_mode=True),
    "average": lambda: nn.AvgPool2d(2, stride=1, padding=1),
    "adaptive": lambda: nn.AdaptiveAvgPool2d(2),
}
SHAPE = (2, 2, 3)
"""Images of 12 values: all corners of a box can be tried."""


class Residual(nn.Module):
    """A branch beside the identity: a scaled sum, a difference and a concatenation."""

    def __init__(self, *branch):
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x):
        y = self.branch(x)
        return torch.cat([x + 0.5 * y, (1 - y.mul(2)) / 3], dim=1)


def norm_of(name, features, dims):
    if name == "torch":
        return (nn.BatchNorm1d if dims == 1 else nn.BatchNorm2d)(features)
    if name == "instance":
        return nn.InstanceNorm2d(features, affine=True) if dims == 2 else nn.Identity()
    return NORMS[name](features)


def network(norm="none", activation="relu", conv="padded", pool="none", seed=0):
    """Build a network with every kind of part, in double precision, with statistics."""
    torch.manual_seed(seed)
    act = ACTIVATIONS[activation]
    parts = [
        Standardize([0.4, 0.6], [0.5, 0.25]),
        nn.Conv2d(2, 4, **CONVOLUTIONS[conv]),
        norm_of(norm, 4, 2),
        act(),
        Residual(norm_of(norm, 4, 2), act(), nn.Conv2d(4, 4, 3, padding=1), nn.Dropout()),
        POOLS[pool](),
        nn.Conv2d(8, 3, 2, padding=1),
        act(),
        nn.Flatten(),
        nn.LazyLinear(6),
        norm_of(norm, 6, 1),
        act(),
        nn.Linear(6, 3),
    ]
    model = nn.Sequential(*parts)
    model(torch.rand(2, *SHAPE))
    return settled(model)


def small(
    norm="none",
    activation="relu",
    conv="padded",
    pool="none",
    residual=False,
    hidden=False,
    two=False,
    seed=0,
):
    """Build a network so shallow that its bounds are nearly attained: a fault shows."""
    torch.manual_seed(seed)
    act = ACTIVATIONS[activation]
    parts = [
        Standardize([0.4, 0.6], [0.5, 0.25]),
        nn.Conv2d(2, 4, **CONVOLUTIONS[conv]),
        norm_of(norm, 4, 2),
        act(),
        *([nn.Conv2d(4, 3, 1), act()] if two else []),
        *([Residual(nn.Conv2d(4, 4, 1))] if residual else []),
        POOLS[pool](),
        nn.Flatten(),
        *([nn.LazyLinear(4), act()] if hidden else []),
        nn.LazyLinear(3),
    ]
    model = nn.Sequential(*parts)
    model(torch.rand(2, *SHAPE))
    return settled(model)


def settled(model):
    """Give norms statistics and parameters of both signs; put the model in evaluation."""
    model = model.double()
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("running_var"):
                value.uniform_(0.3, 2.0)
            elif name.endswith("running_mean"):
                value.normal_(std=0.3)
            elif value.ndim == 1 and name.endswith("weight") and value.numel() > 1:
                value.uniform_(-1.5, 1.5)
    return model.eval()


@cache
def signs_of(dimension):
    """Return the signs of all corners of a box."""
    return torch.tensor(list(product((-1.0, 1.0), repeat=dimension)))


def points(threat, clean, count):
    """Return points of the set around one image: inside, on the edge, and all corners."""
    many = clean.expand(count, *clean.shape[1:])
    step = threat.direction(torch.randn(many.shape, dtype=clean.dtype))
    length = torch.rand(count, *(1,) * (clean.ndim - 1), dtype=clean.dtype) ** 0.1
    spread = torch.rand(many.shape, dtype=clean.dtype) * 2 - 1
    signs = signs_of(clean[0].numel())
    edges = threat.eps * signs.view(-1, *clean.shape[1:]).to(clean.dtype)
    all_of = torch.cat([threat.eps * step * length, threat.eps * spread, edges])
    return threat.project(clean + all_of, clean.expand(len(all_of), *clean.shape[1:]))
