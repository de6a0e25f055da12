"""Operations that round: what must be refused, and what cancels out large terms."""

from collections.abc import Callable

import torch
from planted_operations import MAPS, VECTOR, Operation, maps, vector
from torch import Tensor, nn
from torch.nn import functional as F

TYPES = ("int64", "int32", "int16", "int8", "uint8", "bfloat16", "float16")


def _summed(kind: str, name: str) -> Operation:
    """Sum or average in another type, scaled so that whole numbers are coarse but tell."""
    dtype = getattr(torch, name)

    def apply(s: nn.Module, h: Tensor) -> Tensor:
        scaled = (32 * h + 20)[:, :, None]
        return getattr(scaled, kind)(2, dtype=dtype) * s.one

    return vector(apply)


def _cast(name: str) -> Operation:
    return vector(lambda s, h: (32 * h + 20).to(getattr(torch, name)) * s.one)


def _autocast(s: nn.Module, h: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = h @ s.square
    return product * s.one


def _into_half(s: nn.Module, h: Tensor) -> Tensor:
    """Add in place to a constant of half precision: the sum is rounded to its type."""
    zeros = torch.zeros(h.size(0), 8, dtype=torch.float16)
    return zeros.add_(h) * s.one


REFUSED = {
    **{f"sum to {name}": _summed("sum", name) for name in TYPES},
    **{f"mean to {name}": _summed("mean", name) for name in TYPES[-2:]},
    **{f"to {name}": _cast(name) for name in TYPES},
    "type": vector(lambda s, h: (50 * h).type(torch.int32) * s.one),
    "int": vector(lambda s, h: (50 * h).int() * s.one),
    "half": vector(lambda s, h: h.half() * s.one),
    "bfloat16": vector(lambda s, h: torch.Tensor.bfloat16(h) * s.one),
    "view as another type": vector(lambda s, h: h.view(h.dtype)),
    "div floor": vector(lambda s, h: torch.div(50 * h, 2, rounding_mode="floor")),
    "div trunc": vector(lambda s, h: (50 * h).div(2, rounding_mode="trunc")),
    "floor division": vector(lambda s, h: 50 * h // 2),
    "floor_divide": vector(lambda s, h: torch.floor_divide(50 * h, 2)),
    "remainder": vector(lambda s, h: h % 0.3),
    "fmod": vector(lambda s, h: torch.fmod(h, 0.3)),
    "round": vector(lambda s, h: (50 * h).round()),
    "round decimals": vector(lambda s, h: torch.round(h, decimals=2)),
    "floor": vector(lambda s, h: torch.floor(50 * h)),
    "trunc": vector(lambda s, h: (50 * h).trunc()),
    "sign": vector(lambda s, h: torch.sign(h)),
    "clamp": vector(lambda s, h: torch.clamp(h, None, 0.1)),
    "clamp by a tensor": vector(lambda s, h: h.clamp(max=s.many)),
    "where": vector(lambda s, h: torch.where(s.many > 0, h, -h * h)),
    "where of types": vector(lambda s, h: torch.where(s.many > 0, h, h.half())),
    "comparison": vector(lambda s, h: (h > 0) * s.one),
    "product": vector(lambda s, h: h * h.flip(1)),
    "power": vector(lambda s, h: h**2),
    "absolute": vector(lambda s, h: h.abs()),
    "out": vector(lambda s, h: torch.add(h, 1, out=s.one.new_empty(h.size(0), 8))),
    "out of another type": vector(
        lambda s, h: torch.add(h, 1, out=torch.empty(h.size(0), 8).half()) * s.one
    ),
    "in place into half": vector(_into_half),
    "alpha that is a tensor": vector(lambda s, h: torch.add(h, h, alpha=s.one[0])),
    "softmax": vector(lambda s, h: torch.softmax(h, 1)),
    "softmax to half": vector(lambda s, h: h.softmax(1, dtype=torch.float16) * s.one),
    "cumsum to whole": vector(lambda s, h: (50 * h).cumsum(1, dtype=torch.int32) * s.one),
    "prod": vector(lambda s, h: h[:, :, None].prod(2, dtype=torch.float16) * s.one),
    "interpolate": maps(lambda s, h: F.interpolate(h, 3, mode="bilinear")),
    "threshold": maps(lambda s, h: F.threshold(h, 0.1, -1.0)),
    "hardshrink": maps(lambda s, h: F.hardshrink(h, 0.1)),
    "rrelu": maps(lambda s, h: F.rrelu(h)),
    "celu": maps(lambda s, h: F.celu(h, 0.5)),
    "elu of three numbers": maps(lambda s, h: F.elu_(h * 1, 1.0, 2.0, 3.0)),
    "elu falling": maps(lambda s, h: F.elu(h, -0.5)),
    "softplus falling": maps(lambda s, h: F.softplus(h, -2.0, 1.0)),
    "quantized": maps(
        lambda s, h: torch.fake_quantize_per_tensor_affine(h, 0.1, 0, -128, 127)
    ),
    "autocast": Operation(_autocast, None, VECTOR),
    "ReLU6 of another end": Operation(
        lambda s, h: s.layer(h), lambda: _with(nn.ReLU6(), max_val=0.1)
    ),
    "AvgPool2d of a negative divisor": Operation(
        lambda s, h: s.layer(h), lambda: nn.AvgPool2d(2, divisor_override=-3)
    ),
    "ZeroPad2d of another number": Operation(
        lambda s, h: s.layer(h), lambda: _with(nn.ZeroPad2d(1), value=-2.0)
    ),
    "MaxPool2d with indices": Operation(
        lambda s, h: s.layer(h)[0], lambda: nn.MaxPool2d(2, return_indices=True)
    ),
}


def _with(layer: nn.Module, **settings: float) -> nn.Module:
    for name, value in settings.items():
        setattr(layer, name, value)
    return layer


def _shifted(size: float) -> Operation:
    return vector(lambda s, h: (h + size) - size)


def _far(make: Callable[[], nn.Module], size: float) -> Operation:
    return Operation(lambda s, h: s.layer(h + size), make, MAPS)


def _around(mean: float) -> nn.Module:
    """Return a batch norm around a large mean, which cancels out what was added before."""
    layer = nn.BatchNorm2d(4)
    layer.running_mean.fill_(mean)
    return layer


CANCELLING = {
    **{f"add and sub {size:g}": _shifted(size) for size in (1e2, 1e4, 1e5, 1e6)},
    "add to images and sub": Operation(lambda s, h: h + 3e5 - 3e5, None, VECTOR),
    "mul and div": vector(lambda s, h: (h * 1e-30) / 1e-30),
    "small beside large": vector(lambda s, h: (h * 1e-5 + 1 - 1) * 1e5),
    "large beside small": vector(lambda s, h: torch.cat([h + 1e5, h], 1)[:, :8] - 1e5),
    "pairs that cancel": vector(lambda s, h: (h + 1e5 * h[:, :1]) - 1e5 * h[:, :1]),
    "mean of large": maps(lambda s, h: (h + 1e5).mean(3) - 1e5),
    "sum of large": maps(lambda s, h: (h + 1e5).sum(3) - 4e5),
    "activation of large": maps(lambda s, h: torch.relu(h + 1e5) - 1e5),
    "tanh of large": maps(lambda s, h: torch.tanh(1e4 * (h + 3e2) - 3e6)),
    "BatchNorm2d of large": _far(lambda: _around(1e2), 1e2),
    "GroupNorm of large": _far(lambda: nn.GroupNorm(2, 4), 1e2),
    "InstanceNorm2d of large": _far(lambda: nn.InstanceNorm2d(4), 1e2),
    "LayerNorm of large": _far(lambda: nn.LayerNorm((4, 4)), 1e2),
}
