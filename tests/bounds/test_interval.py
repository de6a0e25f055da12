"""Every interval rule: samples and corners inside, exact where it should be."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from advnorm import norms
from advnorm.bounds import input_box, interval_bounds, trace
from advnorm.threat import L2, Linf


def trained(layer: nn.Module, seed: int = 0) -> nn.Module:
    """Give a layer parameters and statistics of both signs, in double precision."""
    torch.manual_seed(seed)
    layer = layer.double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.normal_(std=1.0 if "weight" in name else 0.5)
        for name, buffer in layer.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_()
            if name.endswith("running_var"):
                buffer.uniform_(0.3, 2.0)
    return layer.eval()


VECTORS: dict[str, nn.Module] = {
    "linear": nn.Linear(8, 5),
    "linear_no_bias": nn.Linear(8, 5, bias=False),
    "batch1d": nn.BatchNorm1d(8),
    "batch1d_plain": nn.BatchNorm1d(8, affine=False),
    "ours": norms.BatchNorm(8),
    "mixture": norms.MixtureNorm(8),
    "affine": norms.AffineNorm(8),
    "dual": norms.DualNorm(8),
    "borrowed": norms.BorrowedNorm(8),
    "group": nn.GroupNorm(2, 8),
    "layer": nn.LayerNorm(8),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "relu_inplace": nn.ReLU(inplace=True),
    "leaky": nn.LeakyReLU(0.1),
    "leaky_down": nn.LeakyReLU(-0.7),
    "prelu": nn.PReLU(8),
    "sigmoid": nn.Sigmoid(),
    "logsigmoid": nn.LogSigmoid(),
    "hardsigmoid": nn.Hardsigmoid(),
    "tanh": nn.Tanh(),
    "hardtanh": nn.Hardtanh(-0.4, 0.3),
    "softsign": nn.Softsign(),
    "softplus": nn.Softplus(),
    "softplus_low": nn.Softplus(beta=3, threshold=1),
    "elu": nn.ELU(0.7),
    "elu_up": nn.ELU(-0.7),
    "celu": nn.CELU(0.7),
    "selu": nn.SELU(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU("tanh"),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "hardswish": nn.Hardswish(),
    "dropout": nn.Dropout(0.5),
    "identity": nn.Identity(),
    "unflatten": nn.Unflatten(1, (2, 4)),
}
MAPS: dict[str, nn.Module] = {
    "conv": nn.Conv2d(2, 3, 2),
    "conv_padded": nn.Conv2d(2, 3, 3, padding=(1, 2), stride=(2, 1)),
    "conv_same": nn.Conv2d(2, 3, 2, padding="same", dilation=2),
    "conv_groups": nn.Conv2d(2, 4, 2, groups=2, bias=False),
    "conv_reflect": nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
    "conv_replicate": nn.Conv2d(2, 3, 3, padding=1, padding_mode="replicate"),
    "conv_circular": nn.Conv2d(2, 3, 2, padding=1, padding_mode="circular"),
    "batch2d": nn.BatchNorm2d(2),
    "ours2d": norms.BatchNorm(2),
    "mixture2d": norms.MixtureNorm(2),
    "affine2d": norms.AffineNorm(2),
    "median2d": norms.MedianNorm(2),
    "dual2d": norms.DualNorm(2),
    "group2d": nn.GroupNorm(1, 2),
    "instance": nn.InstanceNorm2d(2, affine=True),
    "layer2d": nn.LayerNorm([2, 3]),
    "average": nn.AvgPool2d(2, stride=1, padding=1),
    "adaptive": nn.AdaptiveAvgPool2d(1),
    "maximum": nn.MaxPool2d(2, stride=1, padding=1),
    "adaptive_maximum": nn.AdaptiveMaxPool2d(1),
    "zeros": nn.ZeroPad2d(1),
    "reflected": nn.ReflectionPad2d(1),
    "flatten": nn.Flatten(),
    "prelu2d": nn.PReLU(2),
}
CASES = [(name, layer, (8,)) for name, layer in VECTORS.items()]
CASES += [(name, layer, (2, 2, 3)) for name, layer in MAPS.items()]
THREATS = [Linf(0.4, (-1.5, 1.5)), L2(0.7, (-1.5, 1.5))]


def corners(threat, clean: Tensor) -> Tensor:
    """Return every corner of the box around one image, moved into the set."""
    signs = torch.tensor(list(product((-1.0, 1.0), repeat=clean.numel())))
    shift = threat.eps * signs.view(-1, *clean.shape[1:])
    return threat.project(
        clean + shift.to(clean.dtype), clean.expand(len(signs), *clean.shape[1:])
    )


def samples(threat, clean: Tensor, count: int = 500) -> Tensor:
    """Return points of the set around one image, many of them on its edge."""
    many = clean.expand(count, *clean.shape[1:])
    step = torch.randn(many.shape, dtype=clean.dtype)
    step = (
        threat.eps
        * threat.direction(step)
        * torch.rand(count, *[1] * (clean.ndim - 1)) ** 0.2
    )
    spread = torch.rand(many.shape, dtype=clean.dtype) * 2 - 1
    return torch.cat(
        [
            threat.project(many + step, many),
            threat.project(many + threat.eps * spread, many),
        ]
    )


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.name)
@pytest.mark.parametrize(
    ("name", "layer", "shape"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_samples_and_corners_lie_inside(name, layer, shape, threat):
    layer = trained(layer)
    model = nn.Sequential(layer)
    clean = torch.randn(1, *shape, dtype=torch.float64).clamp(-1.5, 1.5)
    images = input_box(clean, threat)
    box = interval_bounds(trace(model), images)[-1]
    inside = torch.cat([corners(threat, clean), samples(threat, clean)])
    values = model(inside)
    assert box.shape[1:] == values.shape[1:]
    assert (values >= box.lower - 1e-9).all() and (values <= box.upper + 1e-9).all()


@pytest.mark.parametrize(
    ("name", "layer", "shape"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_point_gives_the_forward_value(name, layer, shape):
    layer = trained(layer)
    clean = torch.randn(3, *shape, dtype=torch.float64)
    threat = Linf(1e-300, (-9.0, 9.0))
    box = interval_bounds(
        trace(nn.Sequential(layer)), input_box(clean, threat, with_clean=True)
    )[-1]
    value = layer(clean.clone())
    for one in (box.clean, box.lower, box.upper):
        torch.testing.assert_close(one, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("radius", [0.1, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("narrow", ["clean", "adversarial"])
def test_the_gate_of_a_dual_norm_turns_inside_of_the_interval(narrow, radius):
    layer = norms.DualNorm(1).double().eval()
    layer.clean.running_mean.fill_(0.6)
    layer.adversarial.running_mean.fill_(-0.4)
    getattr(layer, narrow).running_var.fill_(0.02)
    for middle in torch.linspace(-1, 1, 9).double():
        clean = middle.view(1, 1)
        box = input_box(clean, Linf(radius, (-9.0, 9.0)))
        output = interval_bounds(trace(nn.Sequential(layer)), box)[-1]
        values = layer(torch.linspace(-1, 1, 2001).double()[:, None] * radius + clean)
        assert (values >= output.lower - 1e-9).all() and (
            values <= output.upper + 1e-9
        ).all()
