"""Batch norms as other packages write them, in our own words: one class for each kind."""

import torch
from torch import nn
from torch.nn import functional as F


class WithModules(nn.BatchNorm2d):
    """A batch norm with dropout and an activation inside, and a forward of its own."""

    def __init__(self, features, act=nn.SiLU, drop=nn.Identity):
        super().__init__(features, eps=1e-3)
        self.drop, self.act = drop(), act()

    def forward(self, x):
        if x.ndim != 4:
            raise ValueError("feature maps only")
        batch = self.training or self.running_mean is None
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        moves = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if moves else (None, None)
        y = F.batch_norm(
            x, mean, var, self.weight, self.bias, batch, self.momentum, self.eps
        )
        return self.act(self.drop(y))


class SyncWithModules(nn.SyncBatchNorm):
    """A synchronized batch norm with an activation inside."""

    def __init__(self, features):
        super().__init__(features)
        self.act = nn.Hardswish()

    def forward(self, x):
        return self.act(super().forward(x))


class Frozen(nn.Module):
    """A batch norm whose parameters and statistics are buffers, as in detection models."""

    def __init__(self, features, eps=1e-4):
        super().__init__()
        self.eps = eps
        for name in ("weight", "running_var"):
            self.register_buffer(name, torch.ones(features))
        for name in ("bias", "running_mean"):
            self.register_buffer(name, torch.zeros(features))

    def forward(self, x):
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)


class FrozenWithModules(Frozen):
    """A frozen batch norm with an activation inside."""

    def __init__(self, features):
        super().__init__(features)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(super().forward(x))


class ActivationInCode(nn.BatchNorm2d):
    """A batch norm whose activation is no module, but code."""

    def forward(self, x):
        return super().forward(x).relu()


class Functional(nn.Module):
    """A module that calls batch norm as a function, twice with the same tensors."""

    def __init__(self, features):
        super().__init__()
        self.conv = nn.Conv2d(features, features, 1)
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.other = nn.Parameter(torch.ones(()))

    def normalize(self, x):
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            weight=self.weight,
            bias=self.bias,
            training=self.training,
            eps=1e-2,
        )

    def forward(self, x):
        return F.relu(self.normalize(self.conv(self.normalize(x)))) * self.other


def weight_alone(features):
    return nn.BatchNorm2d(features, bias=False)


def without_parameters(features):
    return nn.BatchNorm2d(features, affine=False)


def frozen_parameters(features):
    layer = nn.BatchNorm2d(features)
    return layer.requires_grad_(False)


LAYERS = {
    "batch": nn.BatchNorm2d,
    "weight alone": weight_alone,
    "no parameters": without_parameters,
    "fixed parameters": frozen_parameters,
    "sync": nn.SyncBatchNorm,
    "with modules": WithModules,
    "with dropout": lambda n: WithModules(n, nn.ReLU, lambda: nn.Dropout(0.5)),
    "sync with modules": SyncWithModules,
    "frozen": Frozen,
    "frozen with modules": FrozenWithModules,
    "activation in code": ActivationInCode,
    "functional": Functional,
}


def scramble(model):
    """Give parameters and statistics values that matter."""
    with torch.no_grad():
        tensors = [*model.named_parameters(), *model.named_buffers()]
        for name, value in tensors:
            if name.endswith(("running_var", "weight")) and value.ndim == 1:
                value.uniform_(0.5, 1.5)
            elif name.endswith(("running_mean", "bias")):
                value.normal_(0, 0.3)
    return model


class Network(nn.Module):
    """A layer in two places, shared, between convolutions, and one more of its own."""

    def __init__(self, layer):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.shared, self.last = layer(4), layer(4)
        self.again = nn.Sequential(self.shared)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        x = self.again(self.second(self.shared(self.first(x))))
        return self.out(self.last(x).mean((2, 3)))
