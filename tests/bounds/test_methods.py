"""Tighter methods are tighter on trained networks; what cannot be bounded is refused."""

import pytest
import torch
from nets import settled
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.bounds import (
    certify,
    crown_ibp_and_ibp_margins,
    input_box,
    margin_bounds,
    trace,
)
from advnorm.threat import L2, Linf


class Sum(nn.Module):
    """A branch beside the identity."""

    def __init__(self, *branch):
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x):
        return x + self.branch(x)


def build(kind):
    if kind == "dense":
        layers = [nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU()]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(50, 10))
    norm = nn.Identity if kind == "none" else norms.BatchNorm
    middle = [nn.Conv2d(6, 6, 3, padding=1), norm(6), nn.ReLU()]
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1),
        norm(6),
        nn.ReLU(),
        *([Sum(*middle)] if kind == "residual" else middle),
        nn.Flatten(),
        nn.Linear(96, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    )


def trained(kind, *, eps=0.0, steps=120):
    """Train on digits; with an ``eps``, on the worst logits that intervals allow."""
    torch.manual_seed(0)
    digits, model = load_digits(), build(kind)
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for step in range(steps):
        rows = torch.randint(len(images), (64,))
        optimizer.zero_grad()
        logits, threat = model(images[rows]), Linf(eps * step / steps)
        if eps:
            logits = -margin_bounds(model, images[rows], labels[rows], threat, method="ibp")
        F.cross_entropy(logits, labels[rows]).backward()
        optimizer.step()
    model.eval()
    assert (model(images).argmax(1) == labels).float().mean() > 0.8
    return model.double(), images[:30].double(), labels[:30]


@pytest.mark.parametrize("kind", ["none", "batch", "residual"])
def test_a_tighter_method_has_larger_margins_on_trained_networks(kind):
    model, images, labels = trained(kind)
    wrong = torch.ones(len(labels), 10, dtype=torch.bool).scatter(1, labels[:, None], False)
    for threat in (Linf(0.01), Linf(0.05), L2(0.1)):
        ibp, crown_ibp, crown = (
            margin_bounds(model, images, labels, threat, method=method)
            .detach()[wrong]
            .mean()
            for method in ("ibp", "crown-ibp", "crown")
        )
        assert ibp < crown_ibp < crown


def test_the_order_holds_on_a_certified_network_where_lines_are_looser_than_intervals():
    model, images, labels = trained("dense", eps=0.08, steps=150)
    for eps in (0.1, 0.2, 0.4):
        threat, graph = Linf(eps), trace(model)
        ibp, crown_ibp, crown = (
            margin_bounds(model, images, labels, threat, method=method).detach()
            for method in ("ibp", "crown-ibp", "crown")
        )
        lines, _ = crown_ibp_and_ibp_margins(graph, input_box(images, threat), labels)
        assert ibp.mean() < crown_ibp.mean() < crown.mean()
        assert (crown_ibp >= torch.maximum(ibp, lines.lower)).all()
        assert (crown >= ibp).all()
    assert lines.lower.mean() < ibp.mean()


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown"])
@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), norms.BatchNorm(4)], ids=type)
def test_batch_statistics_are_refused_with_the_reason(layer, method):
    model = settled(nn.Sequential(nn.Linear(4, 4), layer, nn.ReLU(), nn.Linear(4, 2)))
    images, labels = torch.rand(3, 4).double(), torch.tensor([0, 1, 0])
    certify(model, images, labels, Linf(0.1), method=method)
    words = r"'1' \(BatchNorm.*batch statistics.*depends on the others.*model.eval\(\)"
    with norms.mode(model, "batch"), pytest.raises(ValueError, match=words):
        certify(model, images, labels, Linf(0.1), method=method)
    with pytest.raises(ValueError, match=words):
        certify(model.train(), images, labels, Linf(0.1), method=method)


class Unknown(nn.ReLU):
    """A layer that computes something else than the type it comes from."""

    def forward(self, x):
        return x.sin()


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown"])
def test_an_unsupported_layer_is_named_with_what_is_supported(method):
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 2)).double()
    images, labels = torch.rand(3, 4).double(), torch.tensor([0, 1, 0])
    words = r"layer '1' \(Softmax\).*BatchNorm2d.*Conv2d.*Linear.*ReLU"
    with pytest.raises(NotImplementedError, match=words):
        margin_bounds(model, images, labels, Linf(0.1), method=method)
    model[1] = Unknown()
    with pytest.raises(NotImplementedError, match="sin"):
        margin_bounds(model, images, labels, Linf(0.1), method=method)
