"""Small networks of the kinds that other projects have take every step of the product.

They are ours; ``benchmarks/foreign.py`` takes the projects' own through the same steps.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent / "norms"))

from foreign import STEPS, convert, take_steps, varied, warm
from foreign_layers import Frozen, WithModules

import advnorm

WIDTH = 6


class Backbone(nn.Module):
    """A convolution, a block, and a linear head: forward is the same for all."""

    def __init__(self, block, out=WIDTH):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1, bias=False)
        self.block, self.head = block, nn.Linear(out, 10)

    def forward(self, x):
        return self.head(self.block(self.stem(x)).mean((2, 3)))


class NormActResidual(nn.Module):
    """Pre-activation residual block whose batch norms have their activation inside."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = WithModules(WIDTH), WithModules(WIDTH, nn.ReLU)
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)

    def forward(self, x):
        return x + self.conv2(self.norm2(self.conv1(self.norm1(x))))


class InvertedResidual(nn.Module):
    """Expand, convolve each channel, project; channels are shuffled on the way."""

    def __init__(self, expansion=2):
        super().__init__()
        wide = expansion * WIDTH
        self.expand = nn.Sequential(nn.Conv2d(WIDTH, wide, 1), nn.BatchNorm2d(wide))
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide)
        )
        self.project = nn.Sequential(nn.Conv2d(wide, WIDTH, 1), nn.BatchNorm2d(WIDTH))

    def forward(self, x):
        y = F.relu6(self.expand(x))
        n, c, h, w = y.size()
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return x + self.project(F.hardswish(self.depthwise(y)))


class Dense(nn.Module):
    """Each layer sees the outputs of all before it."""

    def __init__(self, layers=2, growth=4):
        super().__init__()
        sizes = [WIDTH + growth * i for i in range(layers)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in sizes)
        self.convs = nn.ModuleList(nn.Conv2d(n, growth, 3, padding=1) for n in sizes)

    def forward(self, x):
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([conv(F.relu(norm(x))), x], dim=1)
        return F.avg_pool2d(x, 2)


class SqueezeExcite(nn.Module):
    """Scale channels by a gate that sees their means; dropout depends on the mode."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(WIDTH, WIDTH, 3), nn.BatchNorm2d(WIDTH)
        self.squeeze, self.excite = nn.Conv2d(WIDTH, 2, 1), nn.Conv2d(2, WIDTH, 1)

    def forward(self, x):
        x = F.silu(self.norm(self.conv(x)))
        gate = F.adaptive_avg_pool2d(x, 1)
        x = x * torch.sigmoid(self.excite(F.relu(self.squeeze(gate))))
        return F.dropout(x, 0.1, training=self.training)


class FunctionalNorm(nn.Module):
    """Batch norm as a call, with parameters and statistics of the block's own."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.shift = nn.Parameter(torch.zeros(WIDTH))
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("variance", torch.ones(WIDTH))

    def forward(self, x):
        moments = self.mean, self.variance
        x = F.batch_norm(self.conv(x), *moments, self.scale, self.shift, self.training)
        return F.elu(x)


class NamedLogits(nn.Module):
    """A classifier with a batch norm whose output is a dict."""

    def __init__(self):
        super().__init__()
        block = nn.Sequential(nn.BatchNorm2d(WIDTH), nn.LeakyReLU(0.1))
        self.network = Backbone(block)

    def forward(self, images):
        features = self.network.block(self.network.stem(images)).mean((2, 3))
        return {"logits": self.network.head(features), "features": features}


NETWORKS = {
    "norm with activation": lambda: Backbone(NormActResidual()),
    "inverted residual": lambda: Backbone(InvertedResidual()),
    "dense": lambda: Backbone(Dense(), WIDTH + 8),
    "squeeze-excite": lambda: Backbone(SqueezeExcite()),
    "functional": lambda: Backbone(FunctionalNorm()),
    "dict": NamedLogits,
    "frozen": lambda: Backbone(nn.Sequential(Frozen(WIDTH), nn.ReLU())),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_foreign_network_takes_every_step(name):
    results = take_steps(NETWORKS[name](), (3, 12, 12))
    assert {
        step: results[step].text for step in STEPS if results[step].status != "passed"
    } == {}
    assert results["convert"].text.startswith("10 of 10 norms")
    assert results["train"].text == "mixture, resumed bitwise"
    assert results["load"].text.startswith("onnx")


class Mean(nn.Module):
    """The mean answer of a model, whatever the image."""

    def __init__(self, model, images):
        super().__init__()
        self.model = model
        with torch.no_grad():
            self.answer = model(images).mean(0, keepdim=True)

    def forward(self, x):
        return self.answer + 0 * self.model(x)


def test_a_conversion_that_ignores_the_images_is_seen(monkeypatch):
    images = varied(50, (3, 12, 12))
    monkeypatch.setattr("advnorm.norms.convert", lambda model, name: Mean(model, images))
    model = NETWORKS["dense"]()
    warm(model, (3, 12, 12))
    with pytest.raises(AssertionError, match=r"differ by .* of their spread after conv"):
        convert(model, images)


def test_a_network_that_ignores_the_images_is_not_compared():
    model = NETWORKS["dense"]()
    warm(model, (3, 12, 12))
    model.head.weight.data.mul_(1e-6)
    with pytest.raises(AssertionError, match="hardly depend on the images"):
        convert(model, varied(8, (3, 12, 12)))


def test_a_graph_that_onnxruntime_rewrites_wrongly_is_not_written(tmp_path):
    """It merges zeros around the image into the pooling, which pads with -inf."""
    convolution = nn.Conv2d(3, 4, 3, padding=1)
    convolution.bias.data.fill_(-5)  # so that the zeros are the largest of a window
    pooled = nn.Sequential(convolution, nn.ConstantPad2d(1, 0.0), nn.MaxPool2d(3, 2))
    model = nn.Sequential(pooled, nn.Flatten(), nn.Linear(4 * 6 * 6, 10)).eval()
    file = tmp_path / "net.onnx"
    with pytest.raises(ValueError, match=r"logits differ.*export to torch or torchscript"):
        advnorm.export(model, to="onnx", out=file, images=varied(4, (3, 12, 12)))
    assert not file.exists()
