"""Operations for planted networks: every one that has a rule, and many that must not.

An :class:`Operation` is a function of the network and of a value; the network has the
operation's layer as ``s.layer``, a constant of one entry a feature as ``s.many``, one of a
single entry as ``s.one``, both in the model's type, and ``s.half`` in half precision.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import norms

MAPS, VECTOR = (4, 4, 4), (8,)
"""Shapes of images, and of what the first layer makes of them."""


@dataclass(frozen=True)
class Operation:
    """What a planted network computes in the middle, on maps or on vectors."""

    apply: Callable[[nn.Module, Tensor], Tensor]
    layer: Callable[[], nn.Module] | None = None
    shape: tuple[int, ...] = MAPS


def _layer(make: Callable[[], nn.Module], shape: tuple[int, ...] = MAPS) -> Operation:
    return Operation(lambda s, h: s.layer(h), make, shape)


def maps(apply: Callable[[nn.Module, Tensor], Tensor]) -> Operation:
    return Operation(apply)


def vector(apply: Callable[[nn.Module, Tensor], Tensor]) -> Operation:
    return Operation(apply, None, VECTOR)


def _convolution(**settings: object) -> Operation:
    return _layer(lambda: nn.Conv2d(4, 3, **settings))


def _overwrites(h: Tensor) -> Tensor:
    h = h * 1
    h += 0.5
    h -= 0.25
    h *= 2
    h /= 3
    return h.add_(0.25, alpha=2)


LAYERS = {
    "Linear": _layer(lambda: nn.Linear(8, 5), VECTOR),
    "Conv1d": Operation(lambda s, h: s.layer(h.flatten(2)), lambda: nn.Conv1d(4, 3, 3)),
    "Conv2d": _convolution(kernel_size=3, padding=1),
    "Conv2d strided": _convolution(kernel_size=3, stride=2, padding=1),
    "Conv2d dilated": _convolution(kernel_size=2, dilation=2),
    "Conv2d grouped": _layer(lambda: nn.Conv2d(4, 4, 3, groups=2)),
    "Conv2d same": _convolution(kernel_size=3, padding="same"),
    "Conv2d reflect": _convolution(kernel_size=3, padding=1, padding_mode="reflect"),
    "Conv2d replicate": _convolution(kernel_size=3, padding=1, padding_mode="replicate"),
    "Conv2d circular": _convolution(kernel_size=3, padding=1, padding_mode="circular"),
    "Conv3d": Operation(
        lambda s, h: s.layer(h.unsqueeze(1)).flatten(1, 2), lambda: nn.Conv3d(1, 2, 2)
    ),
    "AvgPool1d": Operation(lambda s, h: s.layer(h.flatten(2)), lambda: nn.AvgPool1d(3, 2)),
    "AvgPool2d": _layer(lambda: nn.AvgPool2d(2, 1, 1, count_include_pad=False)),
    "AvgPool2d ceil": _layer(lambda: nn.AvgPool2d(3, 2, 1, True, divisor_override=5)),
    "AdaptiveAvgPool1d": Operation(
        lambda s, h: s.layer(h.flatten(2)), lambda: nn.AdaptiveAvgPool1d(3)
    ),
    "AdaptiveAvgPool2d": _layer(lambda: nn.AdaptiveAvgPool2d((3, None))),
    "MaxPool1d": Operation(lambda s, h: s.layer(h.flatten(2)), lambda: nn.MaxPool1d(3, 2)),
    "MaxPool2d": _layer(lambda: nn.MaxPool2d(2)),
    "MaxPool2d padded": _layer(lambda: nn.MaxPool2d(2, 2, 1, ceil_mode=True)),
    "MaxPool2d dilated": _layer(lambda: nn.MaxPool2d(2, 1, 0, 2)),
    "AdaptiveMaxPool1d": Operation(
        lambda s, h: s.layer(h.flatten(2)), lambda: nn.AdaptiveMaxPool1d(3)
    ),
    "AdaptiveMaxPool2d": _layer(lambda: nn.AdaptiveMaxPool2d(2)),
    "ZeroPad2d": _layer(lambda: nn.ZeroPad2d((1, 0, 2, 0))),
    "ReflectionPad2d": _layer(lambda: nn.ReflectionPad2d(1)),
    "ReplicationPad2d": _layer(lambda: nn.ReplicationPad2d(1)),
    "Flatten": _layer(nn.Flatten),
    "Unflatten": _layer(lambda: nn.Unflatten(1, (2, 2))),
    "Identity": _layer(nn.Identity),
    "Dropout": _layer(nn.Dropout),
    "Dropout1d": Operation(lambda s, h: s.layer(h.flatten(2)), nn.Dropout1d),
    "Dropout2d": _layer(nn.Dropout2d),
}
ACTIVATIONS = {
    "ReLU": _layer(nn.ReLU),
    "ReLU in place": Operation(lambda s, h: s.layer(h * 1), lambda: nn.ReLU(inplace=True)),
    "ReLU6": _layer(nn.ReLU6),
    "LeakyReLU": _layer(lambda: nn.LeakyReLU(0.2)),
    "LeakyReLU falling": _layer(lambda: nn.LeakyReLU(-0.5)),
    "LeakyReLU steep": _layer(lambda: nn.LeakyReLU(3.0)),
    "PReLU": _layer(lambda: nn.PReLU(4)),
    "Tanh": _layer(nn.Tanh),
    "Sigmoid": _layer(nn.Sigmoid),
    "LogSigmoid": _layer(nn.LogSigmoid),
    "Softplus": _layer(lambda: nn.Softplus(2.0, 0.5)),
    "Softsign": _layer(nn.Softsign),
    "ELU": _layer(lambda: nn.ELU(1.5)),
    "CELU": _layer(lambda: nn.CELU(0.7)),
    "SELU": _layer(nn.SELU),
    "SiLU": _layer(nn.SiLU),
    "GELU": _layer(nn.GELU),
    "GELU tanh": _layer(lambda: nn.GELU("tanh")),
    "Mish": _layer(nn.Mish),
    "Hardtanh": _layer(lambda: nn.Hardtanh(-0.3, 0.2)),
    "Hardsigmoid": _layer(nn.Hardsigmoid),
    "Hardswish": _layer(nn.Hardswish),
}
NORMS = {
    "BatchNorm1d": _layer(lambda: nn.BatchNorm1d(8), VECTOR),
    "BatchNorm2d": _layer(lambda: nn.BatchNorm2d(4)),
    "BatchNorm3d": Operation(
        lambda s, h: s.layer(h.unsqueeze(4)).flatten(3), lambda: nn.BatchNorm3d(4)
    ),
    "norm batch": _layer(lambda: norms.BatchNorm(4)),
    "norm batch, vectors": _layer(lambda: norms.BatchNorm(8), VECTOR),
    "norm mixture": _layer(lambda: norms.MixtureNorm(4)),
    "norm affine": _layer(lambda: norms.AffineNorm(4)),
    "norm median": _layer(lambda: norms.MedianNorm(4)),
    "norm dual": _layer(lambda: norms.DualNorm(4)),
    "norm borrowed": _layer(lambda: norms.BorrowedNorm(4)),
    "GroupNorm": _layer(lambda: nn.GroupNorm(2, 4)),
    "InstanceNorm1d": Operation(
        lambda s, h: s.layer(h.flatten(2)), lambda: nn.InstanceNorm1d(4, affine=True)
    ),
    "InstanceNorm2d": _layer(lambda: nn.InstanceNorm2d(4)),
    "LayerNorm": _layer(lambda: nn.LayerNorm(8), VECTOR),
    "LayerNorm of maps": _layer(lambda: nn.LayerNorm((4, 4))),
}
FUNCTIONS = {
    "add": vector(lambda s, h: h + s.many),
    "add alpha": vector(lambda s, h: torch.add(s.many, h, alpha=-0.5)),
    "add to itself": vector(lambda s, h: h.add(torch.relu(h), alpha=2)),
    "add a wider type": vector(lambda s, h: h + s.many.double().sum() * s.one),
    "add a narrower type": vector(lambda s, h: h + s.half),
    "add whole numbers": vector(lambda s, h: h + torch.arange(8)),
    "sub": vector(lambda s, h: 1 - h),
    "sub alpha": vector(lambda s, h: torch.sub(h, s.many, alpha=3)),
    "mul": vector(lambda s, h: s.many * h),
    "mul by a mask": vector(lambda s, h: h * (s.many > 0)),
    "mul by a narrower type": vector(lambda s, h: h * s.half),
    "div": vector(lambda s, h: h / (s.many.abs() + 0.5)),
    "div by whole numbers": vector(lambda s, h: h / torch.arange(1, 9)),
    "neg": vector(lambda s, h: -h),
    "in place": vector(lambda s, h: _overwrites(h)),
    "cat": vector(lambda s, h: torch.cat([h, h.relu(), 2 * h], 1)),
    "sum": maps(lambda s, h: h.sum((2, 3))),
    "sum kept": maps(lambda s, h: h + h.sum(3, keepdim=True)),
    "mean": maps(lambda s, h: h.mean([2, 3], keepdim=True)),
    "pad": maps(lambda s, h: F.pad(h, (1, 0, 0, 1), value=-0.7)),
    "pad reflect": maps(lambda s, h: F.pad(h, (1, 1, 1, 1), mode="reflect")),
    "pad circular": maps(lambda s, h: F.pad(h, (1, 1, 1, 1), mode="circular")),
    "pad replicate": maps(lambda s, h: F.pad(h, (1, 1, 1, 1), mode="replicate")),
    "getitem": maps(lambda s, h: h[:, 1:, ::2, None, -1]),
    "getitem by a list": maps(lambda s, h: h[:, [3, 0, 0]]),
    "getitem by a mask": vector(lambda s, h: h[:, s.many > s.many.amin()]),
    "reshape": maps(lambda s, h: h.reshape(h.size(0), 8, -1).contiguous()),
    "view": maps(lambda s, h: h.view(h.shape[0], -1)),
    "flatten": maps(lambda s, h: torch.flatten(h, start_dim=1)),
    "permute": maps(lambda s, h: h.permute(0, 2, 3, 1)),
    "transpose": maps(lambda s, h: h.transpose(1, 3).movedim(1, 2)),
    "squeeze": maps(lambda s, h: h.unsqueeze(2).squeeze(2)),
    "relu": maps(lambda s, h: F.relu(h)),
    "relu6": maps(lambda s, h: F.relu6(4 * h)),
    "leaky_relu": maps(lambda s, h: F.leaky_relu(h, 0.3)),
    "hardtanh": maps(lambda s, h: F.hardtanh(h, -0.2, 0.4)),
    "elu": maps(lambda s, h: F.elu(h, 0.8)),
    "gelu": maps(lambda s, h: F.gelu(h, approximate="tanh")),
    "silu": maps(lambda s, h: F.silu(h)),
    "softplus": maps(lambda s, h: F.softplus(h, 3, 1)),
    "sigmoid": maps(lambda s, h: torch.sigmoid(h)),
    "tanh": maps(lambda s, h: h.tanh()),
    "max_pool1d": maps(lambda s, h: F.max_pool1d(h.flatten(2), 2)),
    "max_pool2d": maps(lambda s, h: F.max_pool2d(h, 3, 1, 1)),
    "avg_pool1d": maps(lambda s, h: F.avg_pool1d(h.flatten(2), 3, 2, 1, True, False)),
    "avg_pool2d": maps(lambda s, h: F.avg_pool2d(h, 2, 2, 1)),
    "adaptive_avg_pool1d": maps(lambda s, h: F.adaptive_avg_pool1d(h.flatten(2), 5)),
    "adaptive_avg_pool2d": maps(lambda s, h: F.adaptive_avg_pool2d(h, 2)),
    "dropout": maps(lambda s, h: F.dropout(h, 0.5, s.training)),
}
