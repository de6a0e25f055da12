"""Without norms a deep residual network explodes; with scaled branches it trains."""

from itertools import pairwise

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.models import build
from advnorm.norms.fixup_scaling import residual_branches


class Block(nn.Module):
    """A bottleneck with a gate on its branch, as squeeze-and-excitation networks have."""

    def __init__(self, features, out, *, gate=False):
        super().__init__()
        self.conv1 = nn.Conv2d(features, out, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.gate = nn.Linear(out, out) if gate else None
        self.shortcut = nn.Conv2d(features, out, 1) if features != out else nn.Identity()

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.gate is not None:
            y = y * torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]
        y += self.shortcut(x)
        return F.relu(y)


class Deep(nn.Module):
    """Many blocks, then a classifier."""

    def __init__(self, blocks, *, gate=False):
        super().__init__()
        widths = [4] * blocks + [6]
        pairs = pairwise(widths)
        self.first = nn.Conv2d(3, 4, 3)
        self.blocks = nn.Sequential(*(Block(a, b, gate=gate) for a, b in pairs))
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(self.blocks(self.first(x)).mean((2, 3)))


@pytest.mark.parametrize("gate", [False, True])
def test_branches_are_the_longer_inputs_of_additions(gate):
    model = Deep(3, gate=gate)
    branches = residual_branches(model, fx.Tracer().trace(model))
    assert len(branches) == 3
    for block, branch in zip(model.blocks, branches, strict=True):
        inside = [block.conv1, block.conv2, *([block.gate] if gate else [])]
        assert branch.layers == inside
        assert set(branch.last) == set(inside[1:])


def test_layers_are_scaled_by_the_rules_of_fixup():
    model = Deep(9)
    scaled = norms.convert(model, "none", options={"fixup": True})
    assert norms.has_norm(scaled, "none")
    for old, new in zip(model.blocks, scaled.blocks, strict=True):
        torch.testing.assert_close(new.conv1.weight, old.conv1.weight * 9**-0.5)
        assert not new.conv2.weight.any()
        assert not new.conv1.bias.any() and new.conv1.bias.requires_grad
        if isinstance(old.shortcut, nn.Conv2d):
            assert torch.equal(new.shortcut.weight, old.shortcut.weight)
    assert torch.equal(scaled.first.weight, model.first.weight)
    plain = norms.convert(model, "none")
    assert torch.equal(plain.blocks[0].conv2.weight, model.blocks[0].conv2.weight)


@pytest.mark.parametrize("name", ["preact_resnet18", "resnet56"])
def test_a_deep_network_keeps_its_scale_and_trains(name):
    torch.manual_seed(0)
    model = build(
        name,
        shape=(3, 8, 8) if name == "resnet56" else (3, 16, 16),
        classes=2,
        norm=norms.NORMS["batch"](),
        options={"width": 4} if "preact" in name else {},
    )
    size = 8 if name == "resnet56" else 16
    images, labels = torch.rand(16, 3, size, size), torch.arange(16) % 2
    images[labels == 1] += 0.3
    removed = norms.convert(model, "none")
    scaled = norms.convert(model, "none", options={"fixup": True})
    with torch.no_grad():
        spread = [float(m(images).std()) for m in (removed, scaled)]
    assert spread[1] < 3 < spread[0] / spread[1], spread
    optimizer = torch.optim.SGD(scaled.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = F.cross_entropy(scaled(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], losses


class Branching(Deep):
    """Its forward depends on values."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), "adds none"),
        (lambda: Branching(3), r"cannot be traced \(.+\): leave out fixup"),
    ],
)
def test_what_cannot_be_scaled_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        norms.convert(make(), "none", options={"fixup": True})
    assert norms.has_norm(norms.convert(make(), "none"), "none")
